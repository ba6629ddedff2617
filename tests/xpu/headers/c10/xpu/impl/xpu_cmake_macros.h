// SPDX-License-Identifier: Apache-2.0
// The one header of torch's XPU builds that its CPU wheels don't have.
#pragma once

#define C10_XPU_BUILD_SHARED_LIBS 1
