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
inline F32 prepared(const Rows& in, const float* x, int at, float inverse) {
  switch (in.source) {
    case kPlain: return load(x + at);
    case kNorm: return mul(mul(load(x + at), fill(inverse)), load(in.weight + at));
    default: {
      const F32 gate = load(x + at), up = load(x + in.width + at);
      const F32 silu = div(gate, add(fill(1.0f), exp(mul(gate, fill(-1.0f)))));
      return mul(silu, up);
    }
  }
}

// The columns [begin, end) of a row, whole groups of the weight; past the width there are zeros.
struct Target {
  uint8_t* values;
  size_t row_bytes;
  float* scales;
  int32_t* sums;
};

inline void prepare_group(const Weight& w, const Rows& in, const float* x, float inverse, int row,
                          int g, const Target& out) {
  const int begin = g * w.group;
  uint8_t* target = out.values + row * out.row_bytes;
  alignas(64) float values[1024];
  for (int i = 0; i < w.group; i += 16) {
    const int at = begin + i, left = in.width - at;
    if (left >= 16) {
      store(values + i, prepared(in, x, at, inverse));
      continue;
    }
    // The end of the row: through a copy, so that nothing past it is read.
    alignas(64) float head[3][16] = {};
    for (int j = 0; j < left; j++) {
      head[0][j] = x[at + j];
      head[1][j] = in.source == kGated ? x[in.width + at + j] : 0.0f;
      head[2][j] = in.source == kNorm ? in.weight[at + j] : 0.0f;
    }
    Rows part = in;
    part.weight = head[2];
    part.width = 16;
    store(values + i, prepared(part, head[0], 0, inverse));
  }
  if (w.kind == linear::kFloat) {
    std::memcpy(target + begin * 4, values, w.group * 4);
  } else if (w.kind == linear::kBfloat) {
    for (int i = 0; i < w.group; i += 16)
      store_bf16(reinterpret_cast<uint16_t*>(target) + begin + i, load(values + i));
  } else {
    F32 most = zero(), odd = zero();  // the second stays 0, but for a NaN or an infinity
    for (int i = 0; i < w.group; i += 16) {
      most = max(most, abs(load(values + i)));
      odd = fma(load(values + i), zero(), odd);
    }
    const float unit = has_nan(odd) ? std::nanf("") : largest(most) / 127.0f;
    const float inverse_unit = unit > 0 ? 1.0f / unit : 0.0f;
    int8_t* bytes = reinterpret_cast<int8_t*>(target) + begin;
    F32 total = zero();  // of whole numbers, and so exact in any order
    for (int i = 0; i < w.group; i += 16)
      total = add(total, store_i8(bytes + i, mul(load(values + i), fill(inverse_unit))));
    out.scales[row * w.num_groups() + g] = unit;
    out.sums[row * w.num_groups() + g] = int32_t(sum(total));
  }
}

// A share of the groups of all rows.
inline void prepare(const Weight& w, const Rows& in, const threads::Share& share,
                    const Target& out) {
  const int groups = w.num_groups();
  int row = -1;
  float inverse = 0;
  for (int64_t unit = share.begin; unit < share.end; unit++) {
    const int r = unit / groups;
    const float* x = in.x + r * in.stride;
    if (r != row) {
      row = r;
      if (in.source == kNorm) inverse = inverse_rms(x, in.width, in.eps);
    }
    prepare_group(w, in, x, inverse, r, unit % groups, out);
  }
}

}  // namespace inputs
