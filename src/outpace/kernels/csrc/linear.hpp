// y = x W^T for few rows: the weight is read once, in order, and every row takes part in passing.
//
// A packed weight is a run of panels of 32 output channels. In a panel the inputs follow one
// another, so that one thread reads one stream. The sum for an output is formed in the order of
// the inputs, whatever the number of rows or threads: a row's bits depend on nothing else.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "threads.hpp"

namespace linear {

using namespace simd;

constexpr int kPanel = 32;       // output channels
constexpr int kByteGroup = 64;   // inputs that share an activation scale under int8 by channel

// How weights are stored, and what the inputs are turned into for them.
enum Kind {
  kFloat,        // float32; inputs float32
  kBfloat,       // bf16 in pairs of inputs; inputs bf16
  kByteChannel,  // uint8 around 128, one scale a channel at the panel's end; inputs int8
  kByteGroups,   // uint8 around 128, a scale for each group of inputs; inputs int8
  kNibbleEven,   // uint4 around 8, a scale for each group; inputs int8
  kNibbleOffset  // uint4, a scale and an offset for each group; inputs int8
};

constexpr bool takes_bytes(Kind kind) { return kind >= kByteChannel; }
constexpr bool is_nibble(Kind kind) { return kind == kNibbleEven || kind == kNibbleOffset; }

// Asks for the weights that come soon. With few rows the processor's own prefetching into the
// second cache is nearly as fast as memory, and only wants to be helped over its pauses; the longer
// the rows take, the earlier the lines have to be under way. Where scales lie between the values
// that is best done into the first cache. All of it is measured, and changes no result.
template <Kind K, int R>
inline void expect(const void* p) {
  const uint8_t* at = static_cast<const uint8_t*>(p);
  constexpr bool has_bytes = K == kByteChannel || K == kByteGroups;
  constexpr bool has_gaps = K == kByteGroups || is_nibble(K);
  if (R <= (has_bytes ? 4 : 2)) prefetch_second(at + 640);
  else if (has_gaps) prefetch_first(at + 6144);
  else prefetch_second(at + 6144);
}

struct Weight {
  Kind kind;
  int group;   // inputs that share a scale
  int inputs;  // padded to whole groups (or pairs)
  int outputs;
  const uint8_t* data;

  int num_groups() const { return inputs / group; }
  int num_panels() const { return (outputs + kPanel - 1) / kPanel; }
  size_t group_bytes() const {
    const size_t values = size_t(group) * kPanel;
    switch (kind) {
      case kFloat: return values * 4;
      case kBfloat: return values * 2;
      case kByteChannel: return values;
      case kByteGroups: return values + kPanel * 2;
      case kNibbleEven: return values / 2 + kPanel * 2;
      default: return values / 2 + kPanel * 4;
    }
  }
  size_t panel_bytes() const {
    return num_groups() * group_bytes() + (kind == kByteChannel ? kPanel * 4 : 0);
  }
  const uint8_t* panel(int i) const { return data + i * panel_bytes(); }
};

// The rows of x as the kernel wants them; ``values`` are float, bf16 or int8 by kind.
struct Inputs {
  const uint8_t* values;
  size_t row_bytes;
  const float* scales;     // [rows][groups] of a byte's unit
  const int32_t* sums;     // [rows][groups] of the bytes
  int groups;
};

template <int R>
inline void tile_float(const Weight& w, const float* p, const Inputs& x, int row, float* out) {
  F32 acc[R][2];
  const float* in[R];
  for (int r = 0; r < R; r++) {
    acc[r][0] = acc[r][1] = zero();
    in[r] = reinterpret_cast<const float*>(x.values + (row + r) * x.row_bytes);
  }
  for (int k = 0; k < w.inputs; k++, p += kPanel) {
    expect<kFloat, R>(p);
    expect<kFloat, R>(p + 16);
    const F32 a = load(p), b = load(p + 16);
    for (int r = 0; r < R; r++) {
      const F32 v = fill(in[r][k]);
      acc[r][0] = fma(a, v, acc[r][0]);
      acc[r][1] = fma(b, v, acc[r][1]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < 2; c++) store(out + r * kPanel + 16 * c, acc[r][c]);
}

template <int R>
inline void tile_bfloat(const Weight& w, const uint16_t* p, const Inputs& x, int row, float* out) {
  F32 acc[R][2];
  const uint16_t* in[R];
  for (int r = 0; r < R; r++) {
    acc[r][0] = acc[r][1] = zero();
    in[r] = reinterpret_cast<const uint16_t*>(x.values + (row + r) * x.row_bytes);
  }
  for (int k = 0; k < w.inputs; k += 2, p += 2 * kPanel) {
    expect<kBfloat, R>(p);
    expect<kBfloat, R>(p + kPanel);
    const Pairs a = load_pairs(p), b = load_pairs(p + kPanel);
    for (int r = 0; r < R; r++) {
      const Pairs v = fill_pair(in[r] + k);
      acc[r][0] = dot_pairs(acc[r][0], a, v);
      acc[r][1] = dot_pairs(acc[r][1], b, v);
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < 2; c++) store(out + r * kPanel + 16 * c, acc[r][c]);
}

// Integer dot products within a group, exact; scaled and added in float group by group.
template <Kind K, int R>
inline void tile_bytes(const Weight& w, const uint8_t* p, const Inputs& x, int row, float* out) {
  constexpr int middle = K == kNibbleOffset ? 0 : K == kNibbleEven ? 8 : 128;
  constexpr bool nibbles = K == kNibbleEven || K == kNibbleOffset;
  F32 acc[R][2];
  const int8_t* in[R];
  for (int r = 0; r < R; r++) {
    acc[r][0] = acc[r][1] = zero();
    in[r] = reinterpret_cast<const int8_t*>(x.values + (row + r) * x.row_bytes);
  }
  const int groups = w.num_groups();
  for (int g = 0; g < groups; g++) {
    I32 dot[R][2];
    for (int r = 0; r < R; r++)
      dot[r][0] = dot[r][1] = fill_i32(-middle * x.sums[(row + r) * x.groups + g]);
    for (int q = 0; q < w.group; q += 4) {
      Quads a, b;
      expect<K, R>(p);
      if (nibbles) {
        const Quads both = load_quads(p);
        a = low_nibbles(both);
        b = high_nibbles(both);
        p += 64;
      } else {
        expect<K, R>(p + 64);
        a = load_quads(p);
        b = load_quads(p + 64);
        p += 128;
      }
      for (int r = 0; r < R; r++) {
        const Quads v = fill_quad(in[r] + g * w.group + q);
        dot[r][0] = nibbles ? dot_nibbles(dot[r][0], a, v) : dot_quads(dot[r][0], a, v);
        dot[r][1] = nibbles ? dot_nibbles(dot[r][1], b, v) : dot_quads(dot[r][1], b, v);
      }
    }
    if (K == kByteChannel) {
      for (int r = 0; r < R; r++) {
        const F32 s = fill(x.scales[(row + r) * x.groups + g]);
        for (int c = 0; c < 2; c++) acc[r][c] = fma(to_float(dot[r][c]), s, acc[r][c]);
      }
      continue;
    }
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(p);
    const F32 d[2] = {load_f16(scales), load_f16(scales + 16)};
    p += kPanel * 2;
    for (int r = 0; r < R; r++) {
      const F32 s = fill(x.scales[(row + r) * x.groups + g]);
      for (int c = 0; c < 2; c++) acc[r][c] = fma(mul(to_float(dot[r][c]), s), d[c], acc[r][c]);
    }
    if (K == kNibbleOffset) {
      const F32 m[2] = {load_f16(scales + 32), load_f16(scales + 48)};
      p += kPanel * 2;
      for (int r = 0; r < R; r++) {
        const int at = (row + r) * x.groups + g;
        const F32 s = fill(x.scales[at] * float(x.sums[at]));
        for (int c = 0; c < 2; c++) acc[r][c] = fma(m[c], s, acc[r][c]);
      }
    }
  }
  if (K == kByteChannel) {
    const float* scales = reinterpret_cast<const float*>(p);
    for (int r = 0; r < R; r++)
      for (int c = 0; c < 2; c++) acc[r][c] = mul(acc[r][c], load(scales + 16 * c));
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < 2; c++) store(out + r * kPanel + 16 * c, acc[r][c]);
}

template <Kind K, int R>
inline void tile(const Weight& w, int panel, const Inputs& x, int row, float* out) {
  const uint8_t* p = w.panel(panel);
  if constexpr (K == kFloat)
    tile_float<R>(w, reinterpret_cast<const float*>(p), x, row, out);
  else if constexpr (K == kBfloat)
    tile_bfloat<R>(w, reinterpret_cast<const uint16_t*>(p), x, row, out);
  else
    tile_bytes<K, R>(w, p, x, row, out);
}

// Rows that a kind does at once: bytes have sums of whole numbers and of floats to keep.
constexpr int most_rows(Kind kind) { return takes_bytes(kind) ? kMostByteRows : kMostRows; }

template <Kind K, int R = most_rows(K)>
inline void tile_rows(const Weight& w, int panel, const Inputs& x, int row, int count, float* out) {
  if constexpr (R > 1)
    if (count < R) return tile_rows<K, R - 1>(w, panel, x, row, count, out);
  tile<K, R>(w, panel, x, row, out);
}

// Where results go: ``out[row][channel]`` is set, or added to.
struct Outputs {
  float* values;
  size_t stride;
  const float* bias;
  bool add;
};

inline void put(const Outputs& out, int row, int first, int count, const float* values) {
  float* target = out.values + row * out.stride + first;
  for (int i = 0; i < count; i++) {
    float v = values[i];
    if (out.bias) v += out.bias[first + i];
    target[i] = out.add ? target[i] + v : v;
  }
}

// The panels [begin, end), for all rows: each panel stays in the cache while the rows pass.
template <Kind K>
inline void multiply_kind(const Weight& w, const Inputs& x, int rows, int begin, int end,
                          const Outputs& out) {
  alignas(64) float result[most_rows(K) * kPanel];
  const int tiles = (rows + most_rows(K) - 1) / most_rows(K);
  for (int panel = begin; panel < end; panel++) {
    const int first = panel * kPanel, count = std::min(kPanel, w.outputs - first);
    for (int t = 0; t < tiles; t++) {
      const int row = int64_t(rows) * t / tiles, stop = int64_t(rows) * (t + 1) / tiles;
      tile_rows<K>(w, panel, x, row, stop - row, result);
      for (int r = row; r < stop; r++) put(out, r, first, count, result + (r - row) * kPanel);
    }
  }
}

inline void multiply(const Weight& w, const Inputs& x, int rows, int begin, int end,
                     const Outputs& out) {
  switch (w.kind) {
    case kFloat: return multiply_kind<kFloat>(w, x, rows, begin, end, out);
    case kBfloat: return multiply_kind<kBfloat>(w, x, rows, begin, end, out);
    case kByteChannel: return multiply_kind<kByteChannel>(w, x, rows, begin, end, out);
    case kByteGroups: return multiply_kind<kByteGroups>(w, x, rows, begin, end, out);
    case kNibbleEven: return multiply_kind<kNibbleEven>(w, x, rows, begin, end, out);
    case kNibbleOffset: return multiply_kind<kNibbleOffset>(w, x, rows, begin, end, out);
  }
}

}  // namespace linear
