// A linear layer with what comes before and after it, computed by all threads of a team together.
#pragma once
#include "inputs.hpp"

namespace layer {

// y = f(x) W^T + bias, set or added; f is a norm, a gated activation or nothing.
struct Linear {
  linear::Weight weight;
  inputs::Source source;
  int width;          // of f(x), before padding
  const float* norm;  // [width], of f
  float eps;
  const float* bias;  // [outputs], or null
  bool add;
};

// Rows of numbers that lie ``stride`` apart.
template <class T>
struct Matrix {
  T* values;
  size_t stride;
};

// The bytes that the prepared rows of an input take.
inline size_t row_bytes(const linear::Weight& weight) {
  const size_t size = weight.kind == linear::kFloat ? 4 : weight.kind == linear::kBfloat ? 2 : 1;
  // No two rows at one place of the cache.
  return (size_t(weight.inputs) * size + 63) / 64 * 64 + 64;
}

inline size_t workspace(const linear::Weight& weight, int rows) {
  return rows * (row_bytes(weight) + weight.num_groups() * 8);
}

// Numbers up to which each thread prepares all rows for itself: that takes less time than to wait
// for one another and to fetch what others have prepared.
constexpr int kPreparedAlone = 6144;

// Called by every thread of a team. The result is whole after the team's next barrier. ``out`` must
// not overlap ``x``: one thread may be writing while another still reads.
inline void apply(const Linear& layer, const Matrix<const float>& x, int rows,
                  const Matrix<float>& out, uint8_t* memory) {
  const linear::Weight& weight = layer.weight;
  const size_t bytes = row_bytes(weight), groups = weight.num_groups();
  const bool alone = layer.source != inputs::kGated && rows * weight.inputs <= kPreparedAlone;
  if (alone) {
    static thread_local threads::Scratch own;
    memory = own.get(workspace(weight, rows));
  }
  float* scales = reinterpret_cast<float*>(memory + rows * bytes);
  int32_t* sums = reinterpret_cast<int32_t*>(scales + rows * groups);
  const inputs::Rows in{layer.source, x.values, x.stride, layer.width, layer.norm, layer.eps};
  const int64_t units = int64_t(rows) * groups;
  inputs::prepare(weight, in, alone ? threads::Share{0, units} : threads::mine(units),
                  {memory, bytes, scales, sums});
  if (!alone) {
#pragma omp barrier
  }
  const threads::Share share = threads::mine(weight.num_panels());
  linear::multiply(weight, {memory, bytes, scales, sums, int(groups)}, rows, share.begin,
                   share.end, {out.values, out.stride, layer.bias, layer.add});
}

}  // namespace layer
