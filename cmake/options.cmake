# Build switches and the compiler flags every target shares.
option(TESSERA_TESTS "build the tests" ON)
option(TESSERA_FUZZ "build the fuzz targets beside the program (needs clang) and test with them" OFF)
set(TESSERA_CUDA "AUTO" CACHE STRING "CUDA backend: AUTO, ON or OFF")
set(TESSERA_VIEWER "AUTO" CACHE STRING "the desktop viewer: AUTO, ON or OFF")
option(TESSERA_PYTHON "build the module of the Python package (python/)" OFF)
set(TESSERA_SANITIZE "" CACHE STRING "sanitizers for every target, for instance address,undefined")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

# The IEEE result of every expression is part of the promise "same seed, same bytes": no contraction
# chosen by the compiler, no fast-math. Kernels that want a fused multiply-add write it.
# Device code has its own flags (cuda.cmake).
add_compile_options("$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall;-Wextra;-Wshadow;-Wno-missing-field-initializers;-ffp-contract=off;-fno-math-errno;-fstack-protector-strong;-fstack-clash-protection;-fcf-protection>"
                    "$<$<AND:$<CONFIG:Release>,$<NOT:$<COMPILE_LANGUAGE:CUDA>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
# What the product's folders add: no conversion that loses a value or a sign without being written out
# (engine/core/index.h). Device code and tests go without.
set(TESSERA_PRODUCT_WARNINGS "$<$<COMPILE_LANGUAGE:CXX>:-Wconversion;-Wsign-conversion>")
add_compile_definitions(_GLIBCXX_ASSERTIONS)
add_link_options(-Wl,-z,relro,-z,now)

if(TESSERA_SANITIZE)
  # Built whole on every run of the tests: time to compile counts more than time to run.
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")
  add_compile_options("$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-fsanitize=${TESSERA_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-g1>")
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()
find_program(TESSERA_MOLD mold)
if(TESSERA_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Programs find the libraries of their own build tree, wherever it was moved.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
