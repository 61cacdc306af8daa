// Sixteen floats at a time, with AVX-512 and its bf16 and int8 dot products (Zen 4, Cooper Lake).
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace simd {

constexpr const char* kName = "avx512";
// Rows whose sums for 32 outputs fit into the registers at once.
constexpr int kMostRows = 14;
constexpr int kMostByteRows = 8;
constexpr int kScoredBlocks = 8;  // of 16 keys, whose scores are formed at once

using F32 = __m512;
using I32 = __m512i;

inline F32 zero() { return _mm512_setzero_ps(); }
inline F32 fill(float x) { return _mm512_set1_ps(x); }
inline F32 load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F32 x) { _mm512_storeu_ps(p, x); }
inline F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
inline F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
inline F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
inline F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
inline F32 abs(F32 a) { return _mm512_abs_ps(a); }
inline F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
inline float sum(F32 a) { return _mm512_reduce_add_ps(a); }
inline float largest(F32 a) { return _mm512_reduce_max_ps(a); }

inline I32 fill_i32(int32_t x) { return _mm512_set1_epi32(x); }
inline F32 to_float(I32 a) { return _mm512_cvtepi32_ps(a); }

// exp(x) with a relative error of about 2e-7: 2^n times a polynomial on [-ln2/2, ln2/2].
inline F32 exp(F32 x) {
  x = _mm512_min_ps(fill(88.0f), _mm512_max_ps(fill(-87.3f), x));  // in this order a NaN stays
  const F32 n = _mm512_roundscale_ps(mul(x, fill(1.44269504f)), 8);
  F32 r = fma(n, fill(-0.693359375f), x);
  r = fma(n, fill(2.12194440e-4f), r);
  F32 p = fill(1.9875691500e-4f);
  p = fma(p, r, fill(1.3981999507e-3f));
  p = fma(p, r, fill(8.3334519073e-3f));
  p = fma(p, r, fill(4.1665795894e-2f));
  p = fma(p, r, fill(1.6666665459e-1f));
  p = fma(p, r, fill(5.0000001201e-1f));
  p = fma(p, mul(r, r), add(r, fill(1.0f)));
  return _mm512_scalef_ps(p, n);
}

// Sixteen bf16 numbers to and from float (round to nearest, ties to even).
inline F32 load_bf16(const uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
inline void store_bf16(uint16_t* p, F32 x) {
  const __m256bh half = _mm512_cvtneps_pbh(x);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<const __m256i&>(half));
}
inline F32 load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

inline bool has_nan(F32 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }

// Sixteen numbers between -127 and 127, rounded to nearest: to bytes, and as floats.
inline F32 store_i8(int8_t* p, F32 x) {
  const __m512i whole = _mm512_cvtps_epi32(x);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(whole));
  return _mm512_cvtepi32_ps(whole);
}

// Thirty-two bf16 numbers as 16 pairs; a dot product adds both products of a pair to a float.
using Pairs = __m512i;
inline Pairs load_pairs(const uint16_t* p) { return _mm512_loadu_si512(p); }
inline Pairs fill_pair(const uint16_t* p) {
  return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p));
}
inline F32 dot_pairs(F32 acc, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<const __m512bh&>(a),
                          reinterpret_cast<const __m512bh&>(b));
}

// Sixty-four bytes as 16 quads; a dot product adds the four products of a quad to an int32.
using Quads = __m512i;
inline Quads load_quads(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Quads fill_quad(const int8_t* p) {
  return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p));
}
inline Quads low_nibbles(Quads a) { return _mm512_and_si512(a, _mm512_set1_epi8(0x0f)); }
inline Quads high_nibbles(Quads a) {
  return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(0x0f));
}
inline I32 dot_quads(I32 acc, Quads unsigned_bytes, Quads signed_bytes) {
  return _mm512_dpbusd_epi32(acc, unsigned_bytes, signed_bytes);
}
// The same for unsigned bytes below 16, which other processors do faster.
inline I32 dot_nibbles(I32 acc, Quads nibbles, Quads signed_bytes) {
  return dot_quads(acc, nibbles, signed_bytes);
}

// Turns ``count`` pairs (8 or 16), from number ``at`` on, of 16 rows each into columns: pair k of row
// i goes to out[k * stride + 2 i].
inline void turn(const uint16_t* const (&rows)[16], int at, int count, uint16_t* out,
                 size_t stride) {
  const __mmask16 mask = count == 16 ? 0xffff : 0x00ff;
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i++) a[i] = _mm512_maskz_loadu_epi32(mask, rows[i] + at);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)  // then a[i + c] has the pairs c, 4 + c, 8 + c, 12 + c of 4 rows
    for (int c = 0; c < 2; c++) {
      a[i + 2 * c] = _mm512_unpacklo_epi64(b[i + c], b[i + 2 + c]);
      a[i + 2 * c + 1] = _mm512_unpackhi_epi64(b[i + c], b[i + 2 + c]);
    }
  for (int c = 0; c < 4; c++) {
    const __m512i even[2] = {_mm512_shuffle_i32x4(a[c], a[4 + c], 0x88),
                             _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88)};
    const __m512i odd[2] = {_mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd),
                            _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd)};
    _mm512_storeu_si512(out + c * stride, _mm512_shuffle_i32x4(even[0], even[1], 0x88));
    _mm512_storeu_si512(out + (4 + c) * stride, _mm512_shuffle_i32x4(odd[0], odd[1], 0x88));
    if (count == 8) continue;
    _mm512_storeu_si512(out + (8 + c) * stride, _mm512_shuffle_i32x4(even[0], even[1], 0xdd));
    _mm512_storeu_si512(out + (12 + c) * stride, _mm512_shuffle_i32x4(odd[0], odd[1], 0xdd));
  }
}

// Lane i of the result is the sum of the lanes of a[i].
inline F32 sum_each(const F32 (&a)[16]) {
  F32 b[8], c[4];
  for (int i = 0; i < 8; i++)
    b[i] = add(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]),
               _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
  for (int i = 0; i < 4; i++) {
    const __m512d x = _mm512_castps_pd(b[2 * i]), y = _mm512_castps_pd(b[2 * i + 1]);
    c[i] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
               _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  const F32 d = add(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
  const F32 e = add(_mm512_shuffle_f32x4(c[2], c[3], 0x88), _mm512_shuffle_f32x4(c[2], c[3], 0xdd));
  return add(_mm512_shuffle_f32x4(d, e, 0x88), _mm512_shuffle_f32x4(d, e, 0xdd));
}

// The lanes [begin, end) of a, and ``other`` in the rest.
inline F32 between(F32 a, int begin, int end, float other) {
  const __mmask16 mask = __mmask16(((1u << end) - 1) & ~((1u << begin) - 1));
  return _mm512_mask_mov_ps(fill(other), mask, a);
}

// Into the first cache, or into the second.
inline void prefetch_first(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
inline void prefetch_second(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

}  // namespace simd
