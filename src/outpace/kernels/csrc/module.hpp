// The Python module: plain functions that take addresses and sizes. They trust their caller:
// outpace/kernels/native.py is the only one, and checks shapes when things are made.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "attention.hpp"

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

inline PyObject* multiply(PyObject*, PyObject* const* items, Py_ssize_t count) {
  if (!expect(count, 16)) return nullptr;
  Arguments take(items);
  linear::Weight weight;
  weight.kind = linear::Kind(take.integer());
  weight.group = take.integer();
  weight.inputs = take.integer();
  weight.outputs = take.integer();
  weight.data = take.pointer<uint8_t>();
  inputs::Rows in;
  linear::Outputs out;
  in.source = inputs::Source(take.integer());
  in.width = take.integer();
  in.weight = take.pointer<float>();
  in.eps = take.number();
  out.bias = take.pointer<float>();
  out.add = take.integer();
  const int rows = take.integer();
  in.x = take.pointer<float>();
  in.stride = take.integer();
  out.values = take.pointer<float>();
  out.stride = take.integer();
  if (PyErr_Occurred()) return nullptr;

  static thread_local threads::Scratch memory;
  const size_t row_bytes =
      size_t(weight.inputs) * (weight.kind == linear::kFloat ? 4 : weight.kind == linear::kBfloat ? 2 : 1);
  const size_t padded = (row_bytes + 63) / 64 * 64 + 64;  // no two rows at one place of the cache
  const size_t groups = weight.num_groups();
  uint8_t* values = memory.get(rows * (padded + groups * 8));
  float* scales = reinterpret_cast<float*>(values + rows * padded);
  int32_t* sums = reinterpret_cast<int32_t*>(scales + rows * groups);
  const inputs::Target target{values, padded, scales, sums};
  const linear::Inputs x{values, padded, scales, sums, int(groups)};
  Py_BEGIN_ALLOW_THREADS
#pragma omp parallel
  {
    inputs::prepare(weight, in, rows, target);
#pragma omp barrier
    const threads::Share share = threads::mine(weight.num_panels());
    linear::multiply(weight, x, rows, share.begin, share.end, out);
  }
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

inline PyObject* attend(PyObject*, PyObject* const* items, Py_ssize_t count) {
  if (!expect(count, 18)) return nullptr;
  Arguments take(items);
  attention::Step step;
  const bool bfloat = take.integer();
  step.shape.heads = take.integer();
  step.shape.kv_heads = take.integer();
  step.shape.width = take.integer();
  step.rows = take.integer();
  step.qkv = take.pointer<float>();
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
  if (bfloat) attention::attend_any<attention::Bfloat>(step);
  else attention::attend_any<attention::Float>(step);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

inline PyMethodDef kMethods[] = {
    {"multiply", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(multiply)),
     METH_FASTCALL, nullptr},
    {"attend", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(attend)), METH_FASTCALL,
     nullptr},
    {nullptr, nullptr, 0, nullptr}};

inline PyObject* make(const char* name) {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, name, nullptr, -1, kMethods,
                                   nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&definition);
}

}  // namespace module
