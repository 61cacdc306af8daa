// Work is shared among the OpenMP threads that PyTorch has already: one pool, no oversubscription.
#pragma once
#include <omp.h>

#include <cstdint>
#include <memory>
#include <new>

namespace threads {

struct Share {
  int64_t begin, end;
};

// The part of [0, count) that this thread does: equal parts, in order.
inline Share mine(int64_t count) {
  const int64_t n = omp_get_num_threads(), i = omp_get_thread_num();
  return {count * i / n, count * (i + 1) / n};
}

// Memory that the calling thread keeps between calls; it only grows.
class Scratch {
 public:
  uint8_t* get(size_t bytes) {
    if (bytes > size_) {
      data_.reset(static_cast<uint8_t*>(::operator new(bytes, std::align_val_t(64))));
      size_ = bytes;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t size_ = 0;
};

}  // namespace threads
