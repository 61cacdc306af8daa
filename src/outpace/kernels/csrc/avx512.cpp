#include "simd_avx512.hpp"

#include "module.hpp"

PyMODINIT_FUNC PyInit__avx512() { return module::make("_avx512"); }
