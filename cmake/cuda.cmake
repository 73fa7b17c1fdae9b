# How device code is compiled: whether at all, for which devices, with which flags. Everything that
# nvcc sees goes through tessera_cuda_library(); this is the only place that names an architecture.

# Machine code for Ampere (80, 86), Ada (89), Hopper (90a) and Blackwell of the desk (120), and PTX
# for whatever else is newer than Hopper.
set(TESSERA_CUDA_ARCHITECTURES "80-real;86-real;89-real;90a-real;120-real;90-virtual" CACHE STRING
    "devices that CUDA code is compiled for, as CMAKE_CUDA_ARCHITECTURES takes them")

# Sources whose results equal the CPU's bit for bit: no multiply-add that was not written as one.
set(TESSERA_CUDA_EXACT row_verifier.cu)

set(TESSERA_CUDA_FOUND "none")  # `doctor` prints it
set(TESSERA_CUDA_BUILDS OFF)    # whether device code is compiled
if(NOT TESSERA_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(TESSERA_CUDA_FOUND "${CUDAToolkit_VERSION}")
    # A compiler out of the search path is found beside the toolkit.
    if(NOT DEFINED CMAKE_CUDA_COMPILER AND EXISTS "${CUDAToolkit_BIN_DIR}/nvcc")
      set(CMAKE_CUDA_COMPILER "${CUDAToolkit_BIN_DIR}/nvcc")
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${TESSERA_CUDA_ARCHITECTURES})
    include(CheckLanguage)
    check_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(CMAKE_CUDA_FLAGS_RELEASE "")  # -O3 and the like stand below
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # which CMake 3.25 does not know of nvcc 13
    set(TESSERA_CUDA_BUILDS ON)
  elseif(TESSERA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TESSERA_CUDA is ON and no CUDA toolkit with nvcc was found")
  elseif(CUDAToolkit_FOUND)
    set(TESSERA_CUDA_FOUND "${CUDAToolkit_VERSION}, without nvcc")
  endif()
endif()
message(STATUS "CUDA toolkit: ${TESSERA_CUDA_FOUND}; device code: ${TESSERA_CUDA_BUILDS}")

# The flags of the host part are those of the rest of the program (options.cmake), without warnings:
# what nvcc generates around kernels is not ours.
set(TESSERA_CUDA_HOST_FLAGS -O2 -ffp-contract=off -fno-math-errno -fstack-protector-strong
                            -fstack-clash-protection -fcf-protection)
list(JOIN TESSERA_CUDA_HOST_FLAGS "," TESSERA_CUDA_HOST_FLAGS)
set(TESSERA_CUDA_FLAGS -O3 -lineinfo --expt-relaxed-constexpr -Xptxas=-v -Xfatbin=-compress-all
                       -Xcompiler=${TESSERA_CUDA_HOST_FLAGS})

# A static library with device code. ptxas says what each kernel takes; that goes to a file
# beside the object, OBJECT.ptxas, which tests/gpu reads.
#   tessera_cuda_library(engine_backend_cuda SOURCES linear.cu runtime.cpp DEPS engine_core)
function(tessera_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  tessera_library(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS}
                  LIBS ${ARG_LIBS} CUDA::cudart_static)
  target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${TESSERA_CUDA_FLAGS}>")
  set(launcher ${PROJECT_SOURCE_DIR}/cmake/ptxas_report.sh)
  if(TESSERA_CCACHE)
    list(APPEND launcher ${TESSERA_CCACHE})
  endif()
  set_target_properties(${name} PROPERTIES
    CUDA_ARCHITECTURES "${TESSERA_CUDA_ARCHITECTURES}"
    CUDA_COMPILER_LAUNCHER "${launcher}"
    CUDA_RUNTIME_LIBRARY Static)
  # Kernels share names of files' own; each file is its own unit whatever the version of CMake.
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  set(exact ${TESSERA_CUDA_EXACT})
  foreach(source ${ARG_SOURCES})
    get_filename_component(file ${source} NAME)
    if(file IN_LIST TESSERA_CUDA_EXACT)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-fmad=false")
      list(REMOVE_ITEM exact ${file})
    endif()
  endforeach()
  if(exact AND name STREQUAL "engine_backend_cuda")
    message(FATAL_ERROR "no source of ${name} is called ${exact} (TESSERA_CUDA_EXACT)")
  endif()
endfunction()
