// The layers of a decoder one after the other, in one go: threads meet at barriers only, and
// nobody waits for an interpreter between two layers.
#pragma once
#include <vector>

#include "attention.hpp"
#include "layer.hpp"

namespace stack {

struct Layer {
  layer::Linear qkv, output, gate_up, down;
  layer::Linear beside;     // of another input, added to qkv; without data where there is none
  const float* query_norm;  // [width of a head] each, or null
  const float* key_norm;
  int window;  // positions that a row sees; 0: all
};

struct Stack {
  attention::Shape shape;
  float eps, scale;
  std::vector<Layer> layers;
};

// One pass over the rows of a batch; see attention::Step for what is not said here.
struct Pass {
  int first, last;  // layers [first, last)
  int rows;
  float* stream;  // read and added to
  int hidden;     // from row to row of the stream
  layer::Matrix<const float> beside;  // the other input, for layers that have one
  int inner;      // width of the gated activation
  bool bfloat;    // the caches' numbers
  const int64_t* positions;
  const float* cosines;
  const float* sines;
  const int64_t* targets;
  const attention::Row* views;  // null: only the cache is written, and the stream stays
  const int32_t* slots;
  std::vector<uint8_t*> caches;  // one for each layer from ``first`` on
};

inline attention::Step attention_step(const Stack& stack, const Pass& pass, int index,
                                      const float* qkv, float* out) {
  const Layer& layer = stack.layers[index];
  attention::Step step;
  step.shape = stack.shape;
  step.rows = pass.rows;
  step.qkv = qkv;
  step.positions = pass.positions;
  step.cosines = pass.cosines;
  step.sines = pass.sines;
  step.query_norm = layer.query_norm;
  step.key_norm = layer.key_norm;
  step.eps = stack.eps;
  step.cache = pass.caches[index - pass.first];
  step.targets = pass.targets;
  step.views = pass.views;
  step.slots = pass.slots;
  step.window = layer.window;
  step.scale = stack.scale;
  step.out = out;
  return step;
}

inline size_t largest_workspace(const Stack& stack, const Pass& pass) {
  size_t most = 0;
  for (int index = pass.first; index < pass.last; index++) {
    const Layer& layer = stack.layers[index];
    for (const layer::Linear* one :
         {&layer.qkv, &layer.beside, &layer.output, &layer.gate_up, &layer.down})
      if (one->weight.data) most = std::max(most, layer::workspace(one->weight, pass.rows));
  }
  return most;
}

inline void run(const Stack& stack, const Pass& pass) {
  static thread_local threads::Scratch prepared, activations;
  const attention::Shape& shape = stack.shape;
  const size_t rows = pass.rows, width = size_t(shape.heads) * shape.width;
  const size_t qkv_width = width + 2 * size_t(shape.kv_heads) * shape.width;
  uint8_t* memory = prepared.get(largest_workspace(stack, pass));
  float* qkv = reinterpret_cast<float*>(
      activations.get(rows * (qkv_width + width + 2 * size_t(pass.inner)) * sizeof(float)));
  float* attended = qkv + rows * qkv_width;
  float* inner = attended + rows * width;
  const attention::Memory room =
      attention::room(attention_step(stack, pass, pass.first, qkv, attended), pass.bfloat);
  const size_t hidden = pass.hidden, wide = 2 * size_t(pass.inner);
#pragma omp parallel
  for (int index = pass.first; index < pass.last; index++) {
    const Layer& layer = stack.layers[index];
    layer::apply(layer.qkv, {pass.stream, hidden}, pass.rows, {qkv, qkv_width}, memory);
#pragma omp barrier
    if (layer.beside.weight.data) {
      layer::apply(layer.beside, pass.beside, pass.rows, {qkv, qkv_width}, memory);
#pragma omp barrier
    }
    attention::attend(attention_step(stack, pass, index, qkv, attended), pass.bfloat, room);
    if (!pass.views) continue;
    layer::apply(layer.output, {attended, width}, pass.rows, {pass.stream, hidden}, memory);
#pragma omp barrier
    layer::apply(layer.gate_up, {pass.stream, hidden}, pass.rows, {inner, wide}, memory);
#pragma omp barrier
    layer::apply(layer.down, {inner, wide}, pass.rows, {pass.stream, hidden}, memory);
#pragma omp barrier
  }
}

}  // namespace stack
