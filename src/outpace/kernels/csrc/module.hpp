// The Python module: plain functions that take addresses and sizes. They trust their caller:
// outpace/kernels/native.py is the only one, and checks shapes when things are made.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rows.hpp"
#include "stack.hpp"

namespace module {

// Reads arguments in order.
class Arguments {
 public:
  explicit Arguments(PyObject* const* items) : next_(items) {}
  int64_t integer() { return PyLong_AsLongLong(*next_++); }
  float number() { return float(PyFloat_AsDouble(*next_++)); }
  template <class T>
  T* pointer() {
    return static_cast<T*>(PyLong_AsVoidPtr(*next_++));
  }

 private:
  PyObject* const* next_;
};

inline bool expect(Py_ssize_t given, Py_ssize_t wanted) {
  if (given == wanted) return true;
  PyErr_Format(PyExc_TypeError, "%zd arguments wanted, %zd given", wanted, given);
  return false;
}

inline layer::Linear linear_layer(Arguments& take) {
  layer::Linear made;
  made.weight.kind = linear::Kind(take.integer());
  made.weight.group = take.integer();
  made.weight.inputs = take.integer();
  made.weight.outputs = take.integer();
  made.weight.data = take.pointer<uint8_t>();
  made.source = inputs::Source(take.integer());
  made.width = take.integer();
  made.norm = take.pointer<float>();
  made.eps = take.number();
  made.bias = take.pointer<float>();
  made.add = take.integer();
  return made;
}

inline PyObject* multiply(PyObject*, PyObject* const* items, Py_ssize_t count) {
  if (!expect(count, 16)) return nullptr;
  Arguments take(items);
  const layer::Linear made = linear_layer(take);
  const int rows = take.integer();
  layer::Matrix<const float> x;
  layer::Matrix<float> out;
  x.values = take.pointer<float>();
  x.stride = take.integer();
  out.values = take.pointer<float>();
  out.stride = take.integer();
  if (PyErr_Occurred()) return nullptr;
  static thread_local threads::Scratch scratch;
  uint8_t* memory = scratch.get(layer::workspace(made.weight, rows));
  Py_BEGIN_ALLOW_THREADS
#pragma omp parallel
  layer::apply(made, x, rows, out, memory);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

// Arguments: a linear layer, whose weight is the table; ids, how many, where to.
inline PyObject* look_up(PyObject*, PyObject* const* items, Py_ssize_t count) {
  if (!expect(count, 14)) return nullptr;
  Arguments take(items);
  const layer::Linear table = linear_layer(take);
  const int64_t* ids = take.pointer<int64_t>();
  const int64_t number = take.integer();
  float* out = take.pointer<float>();
  if (PyErr_Occurred()) return nullptr;
  for (int64_t i = 0; i < number; i++)
    if (ids[i] < 0 || ids[i] >= table.weight.outputs)
      return PyErr_Format(PyExc_IndexError, "row %lld of %d", static_cast<long long>(ids[i]),
                          table.weight.outputs);
  Py_BEGIN_ALLOW_THREADS
  for (int64_t i = 0; i < number; i++)
    rows::look_up(table.weight, ids[i], table.width, out + i * table.width);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

// Arguments: rows, how many, how wide, a weight, an epsilon, where to.
inline PyObject* norm(PyObject*, PyObject* const* items, Py_ssize_t count) {
  if (!expect(count, 6)) return nullptr;
  Arguments take(items);
  const float* x = take.pointer<float>();
  const int64_t number = take.integer(), width = take.integer();
  const float* weight = take.pointer<float>();
  const float eps = take.number();
  float* out = take.pointer<float>();
  if (PyErr_Occurred()) return nullptr;
  Py_BEGIN_ALLOW_THREADS
  for (int64_t i = 0; i < number; i++)
    rows::norm(x + i * width, weight, width, eps, out + i * width);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

inline PyObject* attend(PyObject*, PyObject* const* items, Py_ssize_t count) {
  if (!expect(count, 19)) return nullptr;
  Arguments take(items);
  attention::Step step;
  const bool bfloat = take.integer();
  step.shape.heads = take.integer();
  step.shape.kv_heads = take.integer();
  step.shape.width = take.integer();
  step.rows = take.integer();
  step.qkv = take.pointer<float>();
  step.positions = take.pointer<int64_t>();
  step.cosines = take.pointer<float>();
  step.sines = take.pointer<float>();
  step.query_norm = take.pointer<float>();
  step.key_norm = take.pointer<float>();
  step.eps = take.number();
  step.cache = take.pointer<uint8_t>();
  step.targets = take.pointer<int64_t>();
  step.views = take.pointer<attention::Row>();
  step.slots = take.pointer<int32_t>();
  step.window = take.integer();
  step.scale = take.number();
  step.out = take.pointer<float>();
  if (PyErr_Occurred()) return nullptr;
  Py_BEGIN_ALLOW_THREADS
  const attention::Memory room = attention::room(step, bfloat);
#pragma omp parallel
  attention::attend(step, bfloat, room);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

constexpr const char* kStack = "outpace.stack";

inline void drop_stack(PyObject* capsule) {
  delete static_cast<stack::Stack*>(PyCapsule_GetPointer(capsule, kStack));
}

// Arguments: heads, key heads, width of a head, epsilon of their norms, scale; then for each layer
// the eleven values of its five linear layers, the two norms of queries and keys, and the window.
inline PyObject* make_stack(PyObject*, PyObject* const* items, Py_ssize_t count) {
  constexpr Py_ssize_t once = 5, each = 5 * 11 + 3;
  if (count < once || (count - once) % each)
    return PyErr_Format(PyExc_TypeError, "%zd arguments and %zd for each layer wanted, %zd given",
                        once, each, count);
  Arguments take(items);
  std::unique_ptr<stack::Stack> made(new stack::Stack);
  made->shape.heads = take.integer();
  made->shape.kv_heads = take.integer();
  made->shape.width = take.integer();
  made->eps = take.number();
  made->scale = take.number();
  for (Py_ssize_t i = 0; i < (count - once) / each; i++) {
    stack::Layer one;
    for (layer::Linear* linear : {&one.qkv, &one.beside, &one.output, &one.gate_up, &one.down})
      *linear = linear_layer(take);
    one.query_norm = take.pointer<float>();
    one.key_norm = take.pointer<float>();
    one.window = take.integer();
    made->layers.push_back(one);
  }
  if (PyErr_Occurred()) return nullptr;
  return PyCapsule_New(made.release(), kStack, drop_stack);
}

// Arguments: the stack, its first and last layer, rows, the stream and its stride, the input beside
// it and its stride, the width of the gated activation, whether caches are bf16, positions, cosines,
// sines, targets, views, slots; then a cache for each of the layers.
inline PyObject* run_stack(PyObject*, PyObject* const* items, Py_ssize_t count) {
  constexpr Py_ssize_t once = 16;
  if (count < once) return expect(count, once), nullptr;
  auto* all = static_cast<stack::Stack*>(PyCapsule_GetPointer(items[0], kStack));
  if (!all) return nullptr;
  Arguments take(items + 1);
  stack::Pass pass;
  pass.first = take.integer();
  pass.last = take.integer();
  pass.rows = take.integer();
  pass.stream = take.pointer<float>();
  pass.hidden = take.integer();
  pass.beside.values = take.pointer<float>();
  pass.beside.stride = take.integer();
  pass.inner = take.integer();
  pass.bfloat = take.integer();
  pass.positions = take.pointer<int64_t>();
  pass.cosines = take.pointer<float>();
  pass.sines = take.pointer<float>();
  pass.targets = take.pointer<int64_t>();
  pass.views = take.pointer<attention::Row>();
  pass.slots = take.pointer<int32_t>();
  for (Py_ssize_t i = once; i < count; i++) pass.caches.push_back(take.pointer<uint8_t>());
  if (PyErr_Occurred()) return nullptr;
  const bool fits = 0 <= pass.first && pass.first <= pass.last &&
                    size_t(pass.last) <= all->layers.size() &&
                    size_t(pass.last - pass.first) == pass.caches.size();
  if (!fits) return PyErr_Format(PyExc_ValueError, "layers %d to %d", pass.first, pass.last);
  Py_BEGIN_ALLOW_THREADS
  if (pass.first < pass.last && pass.rows > 0) stack::run(*all, pass);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

template <class Function>
inline PyMethodDef method(const char* name, Function function) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL, nullptr};
}

inline PyMethodDef kMethods[] = {method("multiply", multiply), method("look_up", look_up),
                                 method("norm", norm), method("attend", attend),
                                 method("make_stack", make_stack), method("run_stack", run_stack),
                                 {nullptr, nullptr, 0, nullptr}};

inline PyObject* make(const char* name) {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, name, nullptr, -1, kMethods,
                                   nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&definition);
}

}  // namespace module
