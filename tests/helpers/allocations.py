# SPDX-License-Identifier: Apache-2.0
"""What a call allocates, temporary tensors included."""

import torch


def allocations(function):
    """The size in bytes of every tensor memory that ``function()`` takes, freed or not."""
    function()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        kept = function()
    del kept
    found = []
    todo = list(profile.profiler.kineto_results.experimental_event_tree())
    while todo:
        event = todo.pop()
        todo.extend(event.children)
        if event.tag == torch._C._profiler._EventType.Allocation:
            size = event.extra_fields.alloc_size
            if size > 0:
                found.append(size)
    return found
