# Sources of a target are compiled several together: headers, which are most of the work, are read once
# for all of them. Files of one target therefore share no names in their unnamed namespaces. Sources with
# flags of their own stay alone, and those that tessera_alone() names.
function(tessera_units name)
  if(NOT TESSERA_UNITY EQUAL 1)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TESSERA_UNITY})
  endif()
endfunction()

function(tessera_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Each file of a family names its parts as the others do (detect, parse, kForms), so these stay alone.
function(tessera_alone_families)
  foreach(source ${ARGN})
    file(STRINGS ${source} family REGEX "^extern constinit const Family" LIMIT_COUNT 1)
    if(family)
      tessera_alone(${source})
    endif()
  endforeach()
endfunction()

# One library per folder. A library lists what it may include; the layering test holds it to that.
#   tessera_library(engine_ops DEPS engine_backend SOURCES a.cpp b.cpp)
function(tessera_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS})
  tessera_units(${name})
endfunction()

# Tests of parsers of strangers' files; ./test builds this target again with sanitizers.
if(TESSERA_TESTS)
  add_custom_target(parser_tests)
endif()

# Test programs with cases of a CUDA device, and which these are: a list beside the build, a line
# "program filter" each, for a machine that has one (apps/lab/bench/gpu-bundle.sh, gpu-check.sh).
set(TESSERA_DEVICE_TESTS ${PROJECT_BINARY_DIR}/device_tests.txt)
file(WRITE ${TESSERA_DEVICE_TESTS} "")
function(tessera_device_test name filter)
  file(APPEND ${TESSERA_DEVICE_TESTS} "${name} ${filter}\n")
  # The simulated device is found beside the program too, where that was carried elsewhere.
  set_property(TARGET ${name} APPEND PROPERTY BUILD_RPATH "$ORIGIN")
endfunction()

# A test program, one ctest entry. PARSER: it reads hostile files, so it also runs under sanitizers.
# Sources are compiled together; where many share helpers' names, each file has a namespace of its own
# (tessera::NAME_test). ONE_UNIT: all of them at once, for files that include the same few headers.
#   tessera_test(core_test LABEL unit DEPS engine_core SOURCES core_test.cpp [TIMEOUT s] [PARSER]
#                [ONE_UNIT])
function(tessera_test name)
  cmake_parse_arguments(ARG "PARSER;ONE_UNIT" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gtest_main)
  # Tests that open models know those of the laboratory by name.
  foreach(library engine_families apps_runtime apps_jobs apps_studio apps_cli lab_bench lab_eval)
    if("${library}" IN_LIST ARG_DEPS)
      target_link_libraries(${name} PRIVATE lab_linked_models)
      break()
    endif()
  endforeach()
  target_compile_definitions(${name} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             TESSERA_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_compile_options(${name} PRIVATE -O1)
  tessera_units(${name})
  if(ARG_ONE_UNIT AND NOT TESSERA_UNITY EQUAL 1)
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if("test_devices" IN_LIST ARG_DEPS)
    tessera_device_test(${name} "*Cuda*:*cuda*-Simulated*:*simt*")
  endif()
  if(ARG_PARSER)
    list(APPEND ARG_LABEL parser)
    add_dependencies(parser_tests ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# Whether tests have the simulated device: its fibers switch by hand-written code, and sanitizers know
# nothing of their stacks.
set(TESSERA_SIMULATED_DEVICE OFF)
if(TESSERA_TESTS AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT TESSERA_SANITIZE)
  set(TESSERA_SIMULATED_DEVICE ON)
endif()

# Runs a test program once more on devices with memory of their own (tests/support/chosen_backend.h).
#   tessera_device_runs(vq_golden_test FILTER "VqParity.*" [CUDA_FILTER "*"])
function(tessera_device_runs name)
  cmake_parse_arguments(ARG "" "FILTER;CUDA_FILTER" "" ${ARGN})
  if(NOT ARG_CUDA_FILTER)
    set(ARG_CUDA_FILTER ${ARG_FILTER})
  endif()
  target_link_libraries(${name} PRIVATE test_devices)
  tessera_device_test(${name} "${ARG_CUDA_FILTER}")
  get_test_property(${name} LABELS labels)
  get_test_property(${name} TIMEOUT timeout)
  set(devices cuda)
  if(TESSERA_SIMULATED_DEVICE)
    list(APPEND devices simt)
  endif()
  foreach(device ${devices})
    set(filter ${ARG_FILTER})
    set(labels_here ${labels})
    if(device STREQUAL "cuda")
      set(filter ${ARG_CUDA_FILTER})
      list(APPEND labels_here gpu)
    endif()
    add_test(NAME ${name}_${device} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${name}_${device} PROPERTIES LABELS "${labels_here}" TIMEOUT ${timeout}
      SKIP_RETURN_CODE 77 ENVIRONMENT TESSERA_TEST_DEVICE=${device})
  endforeach()
endfunction()
