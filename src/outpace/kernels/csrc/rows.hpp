// What is done to a few rows outside of the layers: looked up in a table, normed.
#pragma once
#include "inputs.hpp"

namespace rows {

using namespace simd;
using linear::kPanel;
using linear::Weight;

// One of sixteen bit floats that stand for neighbouring channels.
inline float half(const uint16_t* channels, int channel) {
  alignas(64) float values[16];
  store(values, load_f16(channels + channel / 16 * 16));
  return values[channel % 16];
}

inline void look_up_integers(const Weight& w, const uint8_t* p, int channel, int width,
                             float* out) {
  const bool nibble = linear::is_nibble(w.kind);
  const bool by_channel = w.kind == linear::kByteChannel;
  const int middle = w.kind == linear::kNibbleOffset ? 0 : nibble ? 8 : 128;
  const int quad = nibble ? kPanel * 2 : kPanel * 4;  // bytes of four inputs
  const int lane = nibble ? channel % 16 : channel, shift = channel / 16 * 4;
  const float* scales = reinterpret_cast<const float*>(p + w.num_groups() * w.group_bytes());
  for (int first = 0; first < width; first += w.group, p += w.group_bytes()) {
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(p + w.group / 4 * quad);
    const float scale = by_channel ? scales[channel] : half(halves, channel);
    const bool has_offset = w.kind == linear::kNibbleOffset;
    const float offset = has_offset ? half(halves + kPanel, channel) : 0.0f;
    const int count = std::min(w.group, width - first);
    for (int k = 0; k < count; k++) {
      const int byte = p[k / 4 * quad + lane * 4 + k % 4];
      const float value = ((nibble ? byte >> shift & 15 : byte) - middle) * scale;
      out[first + k] = has_offset ? value + offset : value;
    }
  }
}

// What a weight has for one of its outputs: a row of an embedding table.
inline void look_up(const Weight& w, int output, int width, float* out) {
  const uint8_t* p = w.panel(output / kPanel);
  const int channel = output % kPanel;
  if (w.kind == linear::kFloat) {
    const float* numbers = reinterpret_cast<const float*>(p) + channel;
    for (int k = 0; k < width; k++) out[k] = numbers[k * kPanel];
  } else if (w.kind == linear::kBfloat) {
    const uint16_t* numbers = reinterpret_cast<const uint16_t*>(p) + 2 * channel;
    for (int k = 0; k < width; k++) {
      const uint32_t bits = uint32_t(numbers[k / 2 * 2 * kPanel + k % 2]) << 16;
      std::memcpy(out + k, &bits, 4);
    }
  } else {
    look_up_integers(w, p, channel, width, out);
  }
}

// x divided by its root mean square, times a weight; ``out`` may be ``x``.
inline void norm(const float* x, const float* weight, int width, float eps, float* out) {
  const inputs::Rows in{inputs::kNorm, x, size_t(width), width, weight, eps};
  const float inverse = inputs::inverse_rms(x, width, eps);
  int i = 0;
  for (; i + 16 <= width; i += 16) store(out + i, inputs::prepared<inputs::kNorm>(in, x, i, inverse));
  for (; i < width; i++) out[i] = x[i] * inverse * weight[i];
}

}  // namespace rows
