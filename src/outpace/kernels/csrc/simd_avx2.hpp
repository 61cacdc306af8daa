// Sixteen floats at a time as two halves, with AVX2, FMA and F16C (x86-64-v3: Haswell, Zen).
//
// Every operation is done in the order in which simd_avx512.hpp does it, so that the two agree in
// their bits: in the integers and in float32 always. In bf16 they do on a Zen 4, but for numbers
// below 2^-126, which the instructions of AVX-512 take for zero.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace simd {

constexpr const char* kName = "avx2";
// Rows whose sums for 32 outputs about fit into the registers.
constexpr int kMostRows = 4;
constexpr int kMostByteRows = 4;
constexpr int kScoredBlocks = 4;  // of 16 keys, whose scores are formed at once

struct F32 {
  __m256 low, high;
};
struct I32 {
  __m256i low, high;
};

inline F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32 fill(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F32 x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
inline F32 add(F32 a, F32 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline F32 mul(F32 a, F32 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline F32 div(F32 a, F32 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline F32 max(F32 a, F32 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline F32 min(F32 a, F32 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline F32 abs(F32 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline F32 fma(F32 a, F32 b, F32 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline float sum(F32 a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(F32 a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline I32 fill_i32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F32 to_float(I32 a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }

// Eight powers of two, for whole numbers from -126 to 127.
inline __m256 power_of_two(__m256 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

// exp(x) with a relative error of about 2e-7: 2^n times a polynomial on [-ln2/2, ln2/2].
inline F32 exp(F32 x) {
  x = min(fill(88.0f), max(fill(-87.3f), x));  // in this order a NaN stays
  const F32 scaled = mul(x, fill(1.44269504f));
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const F32 n = {_mm256_round_ps(scaled.low, nearest), _mm256_round_ps(scaled.high, nearest)};
  F32 r = fma(n, fill(-0.693359375f), x);
  r = fma(n, fill(2.12194440e-4f), r);
  F32 p = fill(1.9875691500e-4f);
  p = fma(p, r, fill(1.3981999507e-3f));
  p = fma(p, r, fill(8.3334519073e-3f));
  p = fma(p, r, fill(4.1665795894e-2f));
  p = fma(p, r, fill(1.6666665459e-1f));
  p = fma(p, r, fill(5.0000001201e-1f));
  p = fma(p, mul(r, r), add(r, fill(1.0f)));
  return mul(p, {power_of_two(n.low), power_of_two(n.high)});
}

// Sixteen bf16 numbers to and from float (round to nearest, ties to even).
inline __m256 widen_bf16(const uint16_t* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
inline F32 load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
inline __m256i round_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}
inline void store_bf16(uint16_t* p, F32 x) {
  const __m256i mixed = _mm256_packus_epi32(round_bf16(x.low), round_bf16(x.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(mixed, 0xd8));
}
inline F32 load_f16(const uint16_t* p) {
  const __m128i* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}

inline bool has_nan(F32 a) {
  const __m256 low = _mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q);
  return _mm256_movemask_ps(_mm256_or_ps(low, _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q))) != 0;
}

// Sixteen numbers between -127 and 127, rounded to nearest: to bytes, and as floats.
inline F32 store_i8(int8_t* p, F32 x) {
  const I32 whole{_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)};
  const __m256i mixed = _mm256_packs_epi32(whole.low, whole.high);
  const __m256i words = _mm256_permute4x64_epi64(mixed, 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  return {_mm256_cvtepi32_ps(whole.low), _mm256_cvtepi32_ps(whole.high)};
}

// Thirty-two bf16 numbers as 16 pairs; a dot product adds both products of a pair to a float.
struct Pairs {
  __m256i low, high;
};
inline Pairs load_pairs(const uint16_t* p) {
  const __m256i* halves = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
inline Pairs fill_pair(const uint16_t* p) {
  const __m256i pair = _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(p));
  return {pair, pair};
}
inline __m256 first_of_pairs(__m256i a) { return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)); }
inline __m256 second_of_pairs(__m256i a) {
  return _mm256_castsi256_ps(_mm256_and_si256(a, _mm256_set1_epi32(int(0xffff0000))));
}
inline __m256 dot_half_pairs(__m256 acc, __m256i a, __m256i b) {
  acc = _mm256_fmadd_ps(second_of_pairs(a), second_of_pairs(b), acc);
  return _mm256_fmadd_ps(first_of_pairs(a), first_of_pairs(b), acc);
}
inline F32 dot_pairs(F32 acc, Pairs a, Pairs b) {
  return {dot_half_pairs(acc.low, a.low, b.low), dot_half_pairs(acc.high, a.high, b.high)};
}

// Sixty-four bytes as 16 quads; a dot product adds the four products of a quad to an int32.
struct Quads {
  __m256i low, high;
};
inline Quads load_quads(const uint8_t* p) {
  const __m256i* halves = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
inline Quads fill_quad(const int8_t* p) {
  const __m256i quad = _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(p));
  return {quad, quad};
}
inline Quads low_nibbles(Quads a) {
  const __m256i mask = _mm256_set1_epi8(0x0f);
  return {_mm256_and_si256(a.low, mask), _mm256_and_si256(a.high, mask)};
}
inline Quads high_nibbles(Quads a) {
  return low_nibbles({_mm256_srli_epi16(a.low, 4), _mm256_srli_epi16(a.high, 4)});
}
// By way of 16 bits, the even bytes and then the odd ones: the instruction that multiplies bytes
// (maddubs) saturates.
inline __m256i dot_half_quads(__m256i acc, __m256i unsigned_bytes, __m256i signed_bytes) {
  const __m256i even = _mm256_and_si256(unsigned_bytes, _mm256_set1_epi16(0xff));
  const __m256i odd = _mm256_srli_epi16(unsigned_bytes, 8);
  const __m256i signed_even = _mm256_srai_epi16(_mm256_slli_epi16(signed_bytes, 8), 8);
  const __m256i signed_odd = _mm256_srai_epi16(signed_bytes, 8);
  acc = _mm256_add_epi32(acc, _mm256_madd_epi16(even, signed_even));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(odd, signed_odd));
}
inline I32 dot_quads(I32 acc, Quads unsigned_bytes, Quads signed_bytes) {
  return {dot_half_quads(acc.low, unsigned_bytes.low, signed_bytes.low),
          dot_half_quads(acc.high, unsigned_bytes.high, signed_bytes.high)};
}
// The same for unsigned bytes below 16: their pairs of products fit into 16 bits.
inline __m256i dot_half_nibbles(__m256i acc, __m256i nibbles, __m256i signed_bytes) {
  const __m256i pairs = _mm256_maddubs_epi16(nibbles, signed_bytes);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline I32 dot_nibbles(I32 acc, Quads nibbles, Quads signed_bytes) {
  return {dot_half_nibbles(acc.low, nibbles.low, signed_bytes.low),
          dot_half_nibbles(acc.high, nibbles.high, signed_bytes.high)};
}

// Eight rows of eight pairs into columns.
inline void turn_eight(const uint16_t* const* rows, int at, uint16_t* out, size_t stride) {
  __m256i a[8], b[8];
  for (int i = 0; i < 8; i++)
    a[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[i] + at));
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)  // then a[i + c] has the pairs c and 4 + c of 4 rows
    for (int c = 0; c < 2; c++) {
      a[i + 2 * c] = _mm256_unpacklo_epi64(b[i + c], b[i + 2 + c]);
      a[i + 2 * c + 1] = _mm256_unpackhi_epi64(b[i + c], b[i + 2 + c]);
    }
  for (int c = 0; c < 4; c++) {
    __m256i* first = reinterpret_cast<__m256i*>(out + c * stride);
    __m256i* second = reinterpret_cast<__m256i*>(out + (4 + c) * stride);
    _mm256_storeu_si256(first, _mm256_permute2x128_si256(a[c], a[4 + c], 0x20));
    _mm256_storeu_si256(second, _mm256_permute2x128_si256(a[c], a[4 + c], 0x31));
  }
}

// Turns ``count`` pairs (8 or 16), from number ``at`` on, of 16 rows each into columns: pair k of row
// i goes to out[k * stride + 2 i].
inline void turn(const uint16_t* const (&rows)[16], int at, int count, uint16_t* out,
                 size_t stride) {
  for (int k = 0; k < count; k += 8)
    for (int i = 0; i < 16; i += 8)
      turn_eight(rows + i, at + 2 * k, out + k * stride + 2 * i, stride);
}

// For halves of four vectors: in each 128 bits the four sums over these bits.
inline __m256 sum_quarters(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  const __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
  return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                       _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
inline __m256 sum_halves(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
inline __m256 sum_eight(const F32* a) {
  const __m256 low = sum_halves(sum_quarters(a[0].low, a[1].low, a[2].low, a[3].low),
                                sum_quarters(a[4].low, a[5].low, a[6].low, a[7].low));
  const __m256 high = sum_halves(sum_quarters(a[0].high, a[1].high, a[2].high, a[3].high),
                                 sum_quarters(a[4].high, a[5].high, a[6].high, a[7].high));
  return _mm256_add_ps(low, high);
}

// Lane i of the result is the sum of the lanes of a[i].
inline F32 sum_each(const F32 (&a)[16]) { return {sum_eight(a), sum_eight(a + 8)}; }

// The lanes [begin, end) of a, and ``other`` in the rest.
inline __m256 between_half(__m256 a, __m256i lanes, int begin, int end, float other) {
  const __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lanes),
                                             _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lanes));
  return _mm256_blendv_ps(_mm256_set1_ps(other), a, _mm256_castsi256_ps(inside));
}
inline F32 between(F32 a, int begin, int end, float other) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {between_half(a.low, lanes, begin, end, other),
          between_half(a.high, _mm256_add_epi32(lanes, _mm256_set1_epi32(8)), begin, end, other)};
}

// Into the first cache, or into the second.
inline void prefetch_first(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
inline void prefetch_second(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

}  // namespace simd
