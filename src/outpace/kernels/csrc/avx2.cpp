#include "simd_avx2.hpp"

#include "module.hpp"

PyMODINIT_FUNC PyInit__avx2() { return module::make("_avx2"); }
