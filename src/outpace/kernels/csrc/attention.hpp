// Attention over a paged cache: rotates queries and keys, writes the cache, attends.
//
// A row sees the cache slots of its own past in the order of their positions: the context, and of
// a draft tree its own ancestors. Sums go by position, in chunks that begin at multiples of 128;
// so a row's bits do not depend on the rows beside it, on the threads, or on its place in a tree.
#pragma once
#include <limits>

#include "inputs.hpp"

namespace attention {

using namespace simd;

constexpr int kChunk = 128;      // positions whose softmax is formed together
constexpr int kRowBlock = 16;    // rows that one thread does together
constexpr int kWidest = 256;     // numbers in a head
constexpr int kMostSplit = 32;   // rows up to which chunks may be shared among threads
constexpr size_t kMostPartial = 32 << 20;  // bytes of results that wait to be folded

struct Shape {
  int heads, kv_heads, width;  // width: numbers in a head, a multiple of 16
  int group() const { return heads / kv_heads; }
};

// Which slots a row sees: ``length`` of them from ``slots[first]`` on, by position.
struct Row {
  int32_t first, length;
};

struct Step {
  Shape shape;
  int rows;
  const float* qkv;        // [rows][heads + 2 kv_heads][width]
  const int64_t* positions; // [rows]
  const float* cosines;     // [positions][width / 2]
  const float* sines;
  const float* query_norm; // [width] each, or null
  const float* key_norm;
  float eps;
  uint8_t* cache;          // [slots][2][kv_heads][width]
  const int64_t* targets;  // [rows] the slots that are written
  const Row* views;        // [rows]; null: nobody attends, only the cache is written
  const int32_t* slots;
  int window;              // positions that a row sees; 0: all
  float scale;
  float* out;              // [rows][heads][width]
};

// The cache's number format.
struct Float {
  using Number = float;
  static F32 load16(const float* p) { return load(p); }
  static void store16(float* p, F32 x) { store(p, x); }
};
struct Bfloat {
  using Number = uint16_t;
  static F32 load16(const uint16_t* p) { return load_bf16(p); }
  static void store16(uint16_t* p, F32 x) { store_bf16(p, x); }
};

template <class C>
inline void rotate_row(const Step& s, int row, typename C::Number* queries) {
  const Shape& shape = s.shape;
  const int width = shape.width, half = width / 2;
  const float* x = s.qkv + size_t(row) * (shape.heads + 2 * shape.kv_heads) * width;
  using Number = typename C::Number;
  Number* cache = reinterpret_cast<Number*>(s.cache) +
                  s.targets[row] * 2 * shape.kv_heads * width;
  const float* cosine = s.cosines + s.positions[row] * half;
  const float* sine = s.sines + s.positions[row] * half;
  for (int head = 0; head < shape.heads + 2 * shape.kv_heads; head++, x += width) {
    const bool is_query = head < shape.heads, is_value = head >= shape.heads + shape.kv_heads;
    Number* target = is_query ? queries + (size_t(row) * shape.heads + head) * width
                              : cache + size_t(head - shape.heads) * width;
    alignas(64) float y[kWidest];
    for (int i = 0; i < width; i += 16) store(y + i, load(x + i));
    const float* norm = is_query ? s.query_norm : s.key_norm;
    if (!is_value && norm) {
      const float inverse = inputs::inverse_rms(x, width, s.eps);
      for (int i = 0; i < width; i++) y[i] = y[i] * inverse * norm[i];
    }
    if (!is_value) {
      for (int i = 0; i < half; i++) {
        const float a = y[i], b = y[i + half];
        y[i] = a * cosine[i] - b * sine[i];
        y[i + half] = b * cosine[i] + a * sine[i];
      }
    }
    for (int i = 0; i < width; i += 16) C::store16(target + i, load(y + i));
  }
}

template <int V>
inline F32 scores16(const float* const (&keys)[16], const float* query) {
  F32 q[V], dots[16];
  for (int v = 0; v < V; v++) q[v] = load(query + 16 * v);
  for (int i = 0; i < 16; i++) {
    dots[i] = zero();
    for (int v = 0; v < V; v++) dots[i] = fma(load(keys[i] + 16 * v), q[v], dots[i]);
  }
  return sum_each(dots);
}

// The keys and values of one key head in one chunk, for rows that see the same slots there.
template <class C, int V>
struct Keys {
  using Number = typename C::Number;
  const Number* keys[kChunk];
  const Number* values[kChunk];
  alignas(64) uint16_t pairs[V * 8][kChunk][2];  // two numbers of each key side by side; of bf16
  int row;    // whose they are
  int count;  // how many; 0: none yet
};

// How many keys of a chunk a row sees, but for its window.
inline int seen(const Row& view, int chunk) {
  return std::max(std::min(view.length - chunk * kChunk, kChunk), 0);
}

template <class C, int V>
inline bool has(const Keys<C, V>& keys, const Step& s, int row, int chunk) {
  const int count = seen(s.views[row], chunk), at = chunk * kChunk;
  if (count > keys.count) return false;
  const int mine = s.views[row].first, theirs = s.views[keys.row].first;
  return mine == theirs ||
         std::memcmp(s.slots + mine + at, s.slots + theirs + at, count * sizeof(int32_t)) == 0;
}

// As many keys as ``row`` sees, or a later one of the rows before ``last`` with the same slots.
template <class C, int V>
inline void take(Keys<C, V>& keys, const Step& s, int row, int last, int kv_head, int chunk) {
  using Number = typename C::Number;
  const Shape& shape = s.shape;
  const int first = s.views[row].first;
  keys.row = row;
  keys.count = 0;
  for (int r = row; r < last; r++)
    if (s.views[r].first == first) keys.count = std::max(keys.count, seen(s.views[r], chunk));
  const size_t stride = size_t(2) * shape.kv_heads * shape.width;
  const Number* base = reinterpret_cast<const Number*>(s.cache) + size_t(kv_head) * shape.width;
  for (int j = 0; j < (keys.count + 15) / 16 * 16; j++) {
    const int64_t slot = j < keys.count ? s.slots[first + chunk * kChunk + j] : 0;
    keys.keys[j] = base + slot * stride;
    keys.values[j] = keys.keys[j] + size_t(shape.kv_heads) * shape.width;
  }
  if constexpr (sizeof(Number) == 2)
    for (int j = 0; j < keys.count; j += 16)
      for (int at = 0; at < V * 8; at += 16)
        turn(reinterpret_cast<const uint16_t* const(&)[16]>(keys.keys[j]), 2 * at,
             std::min(16, V * 8 - at), &keys.pairs[at][j][0], 2 * kChunk);
}

// Scores of 16 B keys: for each the products are added pair by pair.
template <int B, int V>
inline void scores_of(const Keys<Bfloat, V>& keys, int j, const uint16_t* query, float* out) {
  F32 dots[B];
  for (int b = 0; b < B; b++) dots[b] = zero();
  for (int i = 0; i < V * 8; i++) {
    const Pairs q = fill_pair(query + 2 * i);
    for (int b = 0; b < B; b++)
      dots[b] = dot_pairs(dots[b], load_pairs(&keys.pairs[i][j + 16 * b][0]), q);
  }
  for (int b = 0; b < B; b++) store(out + 16 * b, dots[b]);
}

template <int V>
inline void scores(const Keys<Bfloat, V>& keys, int from, int to, const uint16_t* query,
                   float* out) {
  int j = from;
  for (; j + 16 * kScoredBlocks <= to; j += 16 * kScoredBlocks)
    scores_of<kScoredBlocks>(keys, j, query, out + j);
  for (; j + 32 <= to; j += 32) scores_of<2>(keys, j, query, out + j);
  for (; j < to; j += 16) scores_of<1>(keys, j, query, out + j);
}

template <int V>
inline void scores(const Keys<Float, V>& keys, int from, int to, const float* query, float* out) {
  for (int j = from; j < to; j += 16)
    store(out + j,
          scores16<V>(reinterpret_cast<const float* const(&)[16]>(keys.keys[j]), query));
}

// For Q heads of one row: the sum of values weighted by ``weights[head][position in the chunk]``.
template <class C, int V, int Q>
inline void weigh(const typename C::Number* const* values, int begin, int end,
                  const float* weights, float* out) {
  F32 acc[Q][V];
  for (int q = 0; q < Q; q++)
    for (int v = 0; v < V; v++) acc[q][v] = zero();
  for (int j = begin; j < end; j++) {
    F32 p[Q];
    for (int q = 0; q < Q; q++) p[q] = fill(weights[q * kChunk + j]);
    for (int v = 0; v < V; v++) {
      const F32 x = C::load16(values[j] + 16 * v);
      for (int q = 0; q < Q; q++) acc[q][v] = fma(p[q], x, acc[q][v]);
    }
  }
  for (int q = 0; q < Q; q++)
    for (int v = 0; v < V; v++) store(out + (q * V + v) * 16, acc[q][v]);
}

// Softmax over a part of the keys: largest score, sum of the weights, weighted sum of the values.
struct Part {
  float most, total;
  float values[kWidest];
};

inline void begin(Part& part, int width) {
  part.most = -std::numeric_limits<float>::infinity();
  part.total = 0;
  std::memset(part.values, 0, width * sizeof(float));
}

inline float exp1(float x) {
  alignas(64) float lanes[16];
  store(lanes, exp(fill(x)));
  return lanes[0];
}

inline void fold(Part& state, const Part& more, int width) {
  if (more.total == 0) return;
  const float most = std::max(state.most, more.most);
  const float old_share = state.total == 0 ? 0.0f : exp1(state.most - most);
  const float new_share = exp1(more.most - most);
  state.total = state.total * old_share + more.total * new_share;
  const F32 a = fill(old_share), b = fill(new_share);
  for (int i = 0; i < width; i += 16)
    store(state.values + i, fma(load(state.values + i), a, mul(load(more.values + i), b)));
  state.most = most;
}

// One row, all query heads of one key head, the positions of one chunk. ``keys`` are those that the
// row before had; ``last`` is the end of the rows that may share them.
template <class C, int V>
inline void attend_chunk(const Step& s, int row, int last, int kv_head, int chunk,
                         const typename C::Number* queries, Keys<C, V>& keys, Part* parts) {
  const Shape& shape = s.shape;
  const int group = shape.group(), first = chunk * kChunk;
  const Row& view = s.views[row];
  const int stop = seen(view, chunk);
  const int start = s.window ? std::max(0, view.length - s.window - first) : 0;
  for (int h = 0; h < group; h++) begin(parts[h], shape.width);
  if (start >= stop) return;
  if (!has(keys, s, row, chunk)) take(keys, s, row, last, kv_head, chunk);
  const int from = start / 16 * 16, to = (stop + 15) / 16 * 16;
  constexpr int kMostGroup = 16;
  alignas(64) float weights[kMostGroup * kChunk];
  const float hidden = -std::numeric_limits<float>::infinity();
  const auto* query = queries + (size_t(row) * shape.heads + kv_head * group) * shape.width;
  for (int h = 0; h < group; h++) {
    float* w = weights + h * kChunk;
    scores<V>(keys, from, to, query + h * shape.width, w);
    for (int j = from; j < to; j += 16) {
      const int low = std::max(start - j, 0), high = std::min(stop - j, 16);
      store(w + j, between(mul(load(w + j), fill(s.scale)), low, high, hidden));
    }
  }
  for (int h = 0; h < group; h++) {
    float* w = weights + h * kChunk;
    F32 most = fill(hidden);
    for (int j = from; j < to; j += 16) most = max(most, load(w + j));
    parts[h].most = largest(most);
    F32 total = zero();
    for (int j = from; j < to; j += 16) {
      const int low = std::max(start - j, 0), high = std::min(stop - j, 16);
      const F32 p = between(exp(add(load(w + j), fill(-parts[h].most))), low, high, 0.0f);
      store(w + j, p);
      total = add(total, p);
    }
    parts[h].total = sum(total);
  }
  alignas(64) float sums[3 * V * 16];
  for (int h = 0; h < group;) {
    const int count = V <= 8 ? std::min(group - h, 3) : 1;
    const float* w = weights + h * kChunk;
    if (count == 3) weigh<C, V, V <= 8 ? 3 : 1>(keys.values, start, stop, w, sums);
    else if (count == 2) weigh<C, V, V <= 8 ? 2 : 1>(keys.values, start, stop, w, sums);
    else weigh<C, V, 1>(keys.values, start, stop, w, sums);
    for (int q = 0; q < count; q++)
      std::memcpy(parts[h + q].values, sums + q * V * 16, V * 16 * sizeof(float));
    h += count;
  }
}

inline void finish(const Step& s, int row, int head, const Part& part) {
  float* out = s.out + (size_t(row) * s.shape.heads + head) * s.shape.width;
  const F32 share = fill(part.total > 0 ? 1.0f / part.total : 0.0f);
  for (int i = 0; i < s.shape.width; i += 16) store(out + i, mul(load(part.values + i), share));
}

inline int chunks(const Row& view) { return (view.length + kChunk - 1) / kChunk; }

// Room that the calling thread keeps.
template <class C, int V>
inline Keys<C, V>& own_keys() {
  static thread_local threads::Scratch memory;
  return *reinterpret_cast<Keys<C, V>*>(memory.get(sizeof(Keys<C, V>)));
}

// Without sharing: a thread takes a block of rows and a key head, and goes through the chunks.
template <class C, int V>
inline void attend_blocks(const Step& s, const typename C::Number* queries) {
  const int group = s.shape.group();
#pragma omp for schedule(dynamic)
  for (int task = 0; task < (s.rows + kRowBlock - 1) / kRowBlock * s.shape.kv_heads; task++) {
    const int first = task / s.shape.kv_heads * kRowBlock;
    const int count = std::min(kRowBlock, s.rows - first);
    const int kv_head = task % s.shape.kv_heads;
    static thread_local threads::Scratch memory;
    Part* state = reinterpret_cast<Part*>(memory.get((count + 1) * group * sizeof(Part)));
    Part* fresh = state + count * group;
    Keys<C, V>& keys = own_keys<C, V>();
    int most = 0;
    for (int r = 0; r < count; r++) {
      most = std::max(most, chunks(s.views[first + r]));
      for (int h = 0; h < group; h++) begin(state[r * group + h], s.shape.width);
    }
    for (int chunk = 0; chunk < most; chunk++) {
      keys.count = 0;
      for (int r = 0; r < count; r++) {
        attend_chunk<C, V>(s, first + r, first + count, kv_head, chunk, queries, keys, fresh);
        for (int h = 0; h < group; h++) fold(state[r * group + h], fresh[h], s.shape.width);
      }
    }
    for (int r = 0; r < count; r++)
      for (int h = 0; h < group; h++)
        finish(s, first + r, kv_head * group + h, state[r * group + h]);
  }
}

// With sharing: chunks are dealt out to the threads, and folded in order afterwards; the same sums.
template <class C, int V>
inline void attend_shared(const Step& s, const typename C::Number* queries, int most, Part* parts) {
  const int group = s.shape.group(), kv_heads = s.shape.kv_heads;
#pragma omp for schedule(static, 1)
  for (int task = 0; task < most * kv_heads; task++) {
    const int chunk = task / kv_heads, kv_head = task % kv_heads;
    Keys<C, V>& keys = own_keys<C, V>();
    keys.count = 0;
    for (int row = 0; row < s.rows; row++)
      attend_chunk<C, V>(s, row, s.rows, kv_head, chunk, queries, keys,
                         parts + ((size_t(row) * kv_heads + kv_head) * most + chunk) * group);
  }
#pragma omp for schedule(static)
  for (int task = 0; task < s.rows * kv_heads; task++) {
    Part state[16];
    for (int h = 0; h < group; h++) {
      begin(state[h], s.shape.width);
      for (int chunk = 0; chunk < most; chunk++)
        fold(state[h], parts[(size_t(task) * most + chunk) * group + h], s.shape.width);
      finish(s, task / kv_heads, task % kv_heads * group + h, state[h]);
    }
  }
}

// What the threads of a team share while they attend; equal for all layers of a pass.
struct Memory {
  uint8_t* queries;
  Part* parts;  // null: each thread goes through all chunks
  int most;     // chunks of the longest row
};

// Called by one thread before its team attends.
inline Memory room(const Step& s, bool bfloat) {
  static thread_local threads::Scratch queries, partial;
  Memory room{queries.get(size_t(s.rows) * s.shape.heads * s.shape.width * (bfloat ? 2 : 4)),
              nullptr, 0};
  for (int row = 0; s.views && row < s.rows; row++) room.most = std::max(room.most, chunks(s.views[row]));
  const size_t bytes = size_t(s.rows) * s.shape.heads * room.most * sizeof(Part);
  if (s.rows <= kMostSplit && room.most > 1 && bytes <= kMostPartial)
    room.parts = reinterpret_cast<Part*>(partial.get(bytes));
  return room;
}

template <class C, int V>
inline void attend(const Step& s, const Memory& room) {
  using Number = typename C::Number;
  Number* queries = reinterpret_cast<Number*>(room.queries);
  const threads::Share share = threads::mine(s.rows);
  for (int row = share.begin; row < share.end; row++) rotate_row<C>(s, row, queries);
  if (!s.views) return;
#pragma omp barrier
  if (room.parts) attend_shared<C, V>(s, queries, room.most, room.parts);
  else attend_blocks<C, V>(s, queries);
}

// Whether a shape has a kernel.
inline bool fits(const Shape& shape) {
  return shape.width % 16 == 0 && (shape.width <= 128 || shape.width == kWidest) &&
         shape.heads % shape.kv_heads == 0 && shape.group() <= 16;
}

template <class C>
inline void attend_any(const Step& s, const Memory& room) {
  switch (s.shape.width / 16) {
    case 1: return attend<C, 1>(s, room);
    case 2: return attend<C, 2>(s, room);
    case 3: return attend<C, 3>(s, room);
    case 4: return attend<C, 4>(s, room);
    case 5: return attend<C, 5>(s, room);
    case 6: return attend<C, 6>(s, room);
    case 7: return attend<C, 7>(s, room);
    case 8: return attend<C, 8>(s, room);
    default: return attend<C, 16>(s, room);
  }
}

// Called by every thread of a team; the result is whole when it returns.
inline void attend(const Step& s, bool bfloat, const Memory& room) {
  if (bfloat) attend_any<Bfloat>(s, room);
  else attend_any<Float>(s, room);
}

}  // namespace attention
