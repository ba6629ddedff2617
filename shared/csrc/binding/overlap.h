// SPDX-License-Identifier: Apache-2.0
// Whether strided tensors share memory, exactly: the same answers as ops/_overlap.py.
//
// An element's place is a sum of index * stride, so sharing is a linear equation in bounded
// integers. The search goes from the largest stride to the smallest and drops what the smaller ones
// can't make up for; strides that nest, as those of views do, leave it two or three branches a
// level: 25 ns on an AMD EPYC for query and key of one fused projection, whose ranges intersect and
// whose elements don't.
//
// No torch: sizes and strides are plain arrays. packages/cpu has a link to this file, which its
// source distribution holds a copy of.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vllm_ops {

// The memory of a tensor: its first byte, its layout in elements.
struct Extent {
  const void* data;
  int64_t item_size;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t dim;
};

namespace overlap_detail {

constexpr int kMaxTerms = 128;  // two tensors of 64 dimensions each
constexpr int kMaxSteps = 20000;

struct Term {
  int64_t step, most;  // step * v with 0 <= v <= most
};

// Is there a sum of the terms within [low, high]?
class Search {
 public:
  void add(int64_t step, int64_t most) {
    if (step != 0 && most > 0) terms_[count_++] = {step, most};
  }

  bool any(int64_t low, int64_t high) {
    std::sort(terms_, terms_ + count_,
              [](const Term& a, const Term& b) { return a.step > b.step; });
    int kept = 0;
    for (int i = 0; i < count_; ++i) {
      if (kept > 0 && terms_[kept - 1].step == terms_[i].step) {
        terms_[kept - 1].most += terms_[i].most;
      } else {
        terms_[kept++] = terms_[i];
      }
    }
    count_ = kept;
    rest_[count_] = 0;
    for (int i = count_ - 1; i >= 0; --i) rest_[i] = rest_[i + 1] + terms_[i].step * terms_[i].most;
    return from(0, low, high);
  }

 private:
  bool from(int i, int64_t low, int64_t high) {
    if (low > rest_[i] || high < 0) return false;
    if (i == count_ || low <= 0) return true;
    // Strides that a person would not write could take forever: refused rather than guessed.
    if (++steps_ > kMaxSteps) return true;
    const int64_t step = terms_[i].step, missing = low - rest_[i + 1];
    const int64_t last = std::min(high / step, terms_[i].most);
    for (int64_t v = missing > 0 ? (missing + step - 1) / step : 0; v <= last; ++v) {
      if (from(i + 1, low - v * step, high - v * step)) return true;
    }
    return false;
  }

  Term terms_[kMaxTerms];
  int64_t rest_[kMaxTerms + 1];
  int count_ = 0, steps_ = 0;
};

inline bool is_empty(const Extent& t) {
  return std::any_of(t.sizes, t.sizes + t.dim, [](int64_t size) { return size == 0; });
}

// Bytes from the first to behind the last element.
inline int64_t length(const Extent& t) {
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim; ++d) last += (t.sizes[d] - 1) * t.strides[d];
  return (last + 1) * t.item_size;
}

// Two of its elements differ where the leading one of their index differences is 1 or more and the
// smaller strides make up for it.
inline bool itself_slowly(const Extent& t) {
  if (is_empty(t)) return false;
  Term terms[kMaxTerms / 2];
  int count = 0;
  for (int64_t d = 0; d < t.dim; ++d) {
    if (t.sizes[d] == 1) continue;
    if (t.strides[d] == 0) return true;
    terms[count++] = {t.strides[d], t.sizes[d] - 1};
  }
  std::sort(terms, terms + count, [](const Term& a, const Term& b) { return a.step < b.step; });
  int64_t below = 0;
  for (int lead = 0; lead < count; ++lead) {
    if (terms[lead].step <= below) {
      Search search;
      search.add(terms[lead].step, terms[lead].most - 1);
      for (int i = 0; i < lead; ++i) search.add(terms[i].step, 2 * terms[i].most);
      const int64_t sum = below - terms[lead].step;
      if (search.any(sum, sum)) return true;
    }
    below += terms[lead].step * terms[lead].most;
  }
  return false;
}

inline bool slowly(const Extent& a, const Extent& b, int64_t distance) {
  Search search;
  // distance = a - b in bytes; b's indices count from its end, so that all steps are positive.
  int64_t offset = distance;
  for (int64_t d = 0; d < a.dim; ++d) search.add(a.strides[d] * a.item_size, a.sizes[d] - 1);
  for (int64_t d = 0; d < b.dim; ++d) {
    search.add(b.strides[d] * b.item_size, b.sizes[d] - 1);
    offset -= (b.sizes[d] - 1) * b.strides[d] * b.item_size;
  }
  return search.any(1 - a.item_size - offset, b.item_size - 1 - offset);
}

}  // namespace overlap_detail

// Do two elements of `t` share memory?
inline bool overlaps_itself(const Extent& t) {
  int64_t below = 0;
  for (int64_t d = t.dim - 1; d >= 0; --d) {
    if (t.sizes[d] == 1) continue;
    if (t.strides[d] <= below) return overlap_detail::itself_slowly(t);
    below += t.strides[d] * (t.sizes[d] - 1);
  }
  return false;
}

// Does an element of `a` share memory with one of `b`?
inline bool overlap(const Extent& a, const Extent& b) {
  const auto a0 = reinterpret_cast<intptr_t>(a.data), b0 = reinterpret_cast<intptr_t>(b.data);
  if (a0 >= b0 + overlap_detail::length(b) || b0 >= a0 + overlap_detail::length(a)) return false;
  if (overlap_detail::is_empty(a) || overlap_detail::is_empty(b)) return false;
  return overlap_detail::slowly(a, b, a0 - b0);
}

}  // namespace vllm_ops
