// What happens to the rows before a linear layer: norm or gated activation, then float, bf16 or
// int8, in one pass. All of it is done row by row.
#pragma once
#include "linear.hpp"

namespace inputs {

using namespace simd;
using linear::Weight;

enum Source {
  kPlain,  // x [rows, n]
  kNorm,   // x [rows, n], divided by its root mean square and multiplied by a weight [n]
  kGated   // x [rows, 2n]: silu of the first half times the second
};

struct Rows {
  Source source;
  const float* x;
  size_t stride;
  int width;           // of a prepared row, before padding
  const float* weight; // of the norm
  float eps;
};

inline float inverse_rms(const float* x, int width, float eps) {
  F32 total = zero();
  int i = 0;
  for (; i + 16 <= width; i += 16) {
    const F32 v = load(x + i);
    total = fma(v, v, total);
  }
  float squares = sum(total);
  for (; i < width; i++) squares += x[i] * x[i];
  return 1.0f / std::sqrt(squares / width + eps);
}

// Sixteen prepared values from column ``at`` on.
template <Source S>
inline F32 prepared(const Rows& in, const float* x, int at, float inverse) {
  if (S == kPlain) return load(x + at);
  if (S == kNorm) return mul(mul(load(x + at), fill(inverse)), load(in.weight + at));
  const F32 gate = load(x + at), up = load(x + in.width + at);
  const F32 silu = div(gate, add(fill(1.0f), exp(mul(gate, fill(-1.0f)))));
  return mul(silu, up);
}

// The same where the row ends before: through a copy, so that nothing past it is read.
template <Source S>
inline F32 prepared_end(const Rows& in, const float* x, int at, float inverse) {
  alignas(64) float numbers[32] = {}, weight[16] = {};
  for (int j = 0; at + j < in.width; j++) {
    numbers[j] = x[at + j];
    numbers[16 + j] = S == kGated ? x[in.width + at + j] : 0.0f;
    weight[j] = S == kNorm ? in.weight[at + j] : 0.0f;
  }
  Rows part = in;
  part.weight = weight;
  part.width = 16;
  return prepared<S>(part, numbers, 0, inverse);
}

// Gives the prepared values of the columns [begin, end), sixteen at a time, to ``take``.
template <Source S, class Take>
inline void each(const Rows& in, const float* x, float inverse, int begin, int end, Take take) {
  int at = begin;
  for (; at + 16 <= std::min(end, in.width); at += 16) take(at, prepared<S>(in, x, at, inverse));
  for (; at < end; at += 16) take(at, prepared_end<S>(in, x, at, inverse));
}

// Where the prepared rows go; past the width there are zeros.
struct Target {
  uint8_t* values;
  size_t row_bytes;
  float* scales;
  int32_t* sums;
};

// A group of inputs as bytes, with their unit and their sum.
template <Source S>
inline void prepare_bytes(const Weight& w, const Rows& in, const float* x, float inverse, int row,
                          int g, const Target& out) {
  alignas(64) float values[1024];
  const int begin = g * w.group;
  F32 most = zero(), odd = zero();  // the second stays 0, but for a NaN or an infinity
  each<S>(in, x, inverse, begin, begin + w.group, [&](int at, F32 v) {
    store(values + at - begin, v);
    most = max(most, abs(v));
    odd = fma(v, zero(), odd);
  });
  const float unit = has_nan(odd) ? std::nanf("") : largest(most) / 127.0f;
  const float inverse_unit = unit > 0 ? 1.0f / unit : 0.0f;
  int8_t* bytes = reinterpret_cast<int8_t*>(out.values + row * out.row_bytes) + begin;
  F32 total = zero();  // of whole numbers, and so exact in any order
  for (int i = 0; i < w.group; i += 16)
    total = add(total, store_i8(bytes + i, mul(load(values + i), fill(inverse_unit))));
  out.scales[row * w.num_groups() + g] = unit;
  out.sums[row * w.num_groups() + g] = int32_t(sum(total));
}

// The groups [begin, end) of one row.
template <Source S>
inline void prepare_row(const Weight& w, const Rows& in, int row, int begin, int end,
                        const Target& out) {
  const float* x = in.x + row * in.stride;
  const float inverse = S == kNorm ? inverse_rms(x, in.width, in.eps) : 0.0f;
  uint8_t* target = out.values + row * out.row_bytes;
  if (linear::takes_bytes(w.kind)) {
    for (int g = begin; g < end; g++) prepare_bytes<S>(w, in, x, inverse, row, g, out);
  } else if (w.kind == linear::kBfloat) {
    uint16_t* numbers = reinterpret_cast<uint16_t*>(target);
    each<S>(in, x, inverse, begin * w.group, end * w.group,
            [&](int at, F32 v) { store_bf16(numbers + at, v); });
  } else {
    float* numbers = reinterpret_cast<float*>(target);
    each<S>(in, x, inverse, begin * w.group, end * w.group,
            [&](int at, F32 v) { store(numbers + at, v); });
  }
}

// A share of the groups of all rows.
inline void prepare(const Weight& w, const Rows& in, const threads::Share& share,
                    const Target& out) {
  const int64_t groups = w.num_groups();
  for (int64_t unit = share.begin; unit < share.end;) {
    const int64_t row = unit / groups, stop = std::min((row + 1) * groups, share.end);
    const int begin = unit - row * groups, end = stop - row * groups;
    switch (in.source) {
      case kPlain: prepare_row<kPlain>(w, in, row, begin, end, out); break;
      case kNorm: prepare_row<kNorm>(w, in, row, begin, end, out); break;
      case kGated: prepare_row<kGated>(w, in, row, begin, end, out); break;
    }
    unit = stop;
  }
}

}  // namespace inputs
