# Sources of a target are compiled several together: headers, which are most of the work, are read once
# for all of them. Files of one target therefore share no names in their unnamed namespaces. Sources with
# flags of their own stay alone, and those that tessera_alone() names.
function(tessera_units name)
  if(NOT TESSERA_UNITY EQUAL 1)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TESSERA_UNITY})
    # A source that is included counts as a header, whose classes must not hold what one file alone knows.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
  # Tests are long by themselves: smaller units keep all processors at work.
  get_target_property(type ${name} TYPE)
  if(type STREQUAL EXECUTABLE AND TESSERA_UNITY GREATER 12)
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 12)
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

# Cases of a CUDA device and the programs that have them: a list next to the build, a line
# "program filter seconds" each, for a machine that has one (apps/lab/bench/gpu-bundle.sh, gpu-check.sh).
set(TESSERA_DEVICE_TESTS ${PROJECT_BINARY_DIR}/device_tests.txt)
file(WRITE ${TESSERA_DEVICE_TESTS} "")
function(tessera_device_test name filter seconds)
  file(APPEND ${TESSERA_DEVICE_TESTS} "${name} ${filter} ${seconds}\n")
  # The simulated device is found beside the program too, where that was carried elsewhere.
  set_property(TARGET ${name} APPEND PROPERTY BUILD_RPATH "$ORIGIN")
endfunction()

# The test program of a folder: its *_test.cpp, or SOURCES alone, and MORE besides. Each file has a namespace
# of its own (tessera::NAME_test), for sources are compiled together.
#   tessera_test(decoding_tests LABEL unit DEPS engine_decoding)
# PARSER: it reads hostile files, so ./test runs it under sanitizers too. RUNS: programs that it starts; it
# knows tessera-lab as TESSERA_PROGRAM, tessera as TESSERA_ALONE, tessera-video as VIDEO_HELPER. SHARDS: so many
# ctest entries NAME_1, NAME_2, each with its share of the cases. COST: seconds; what is long begins first.
function(tessera_test name)
  cmake_parse_arguments(ARG "PARSER" "TIMEOUT;SHARDS;COST;DEVICE_SECONDS" "LABEL;SOURCES;MORE;DEPS;LIBS;RUNS" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  endif()
  add_executable(${name} ${ARG_SOURCES} ${ARG_MORE})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS} GTest::gtest GTest::gtest_main)
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
  tessera_test_runs(${name} ${ARG_RUNS})
  foreach(default "TIMEOUT 120" "SHARDS 1" "COST 0" "DEVICE_SECONDS 90")
    separate_arguments(default)
    list(GET default 0 key)
    if(NOT ARG_${key})
      list(GET default 1 ARG_${key})
    endif()
  endforeach()
  if("test_devices" IN_LIST ARG_DEPS)
    tessera_device_test(${name} "*uda*-Simulated*:*simt*" ${ARG_DEVICE_SECONDS})
  endif()
  if(ARG_PARSER)
    list(APPEND ARG_LABEL parser)
    add_dependencies(parser_tests ${name})
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(entry ${name})
    set(environment "")
    if(ARG_SHARDS GREATER 1)
      set(entry ${name}_${shard})
      math(EXPR index "${shard} - 1")
      set(environment GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
    endif()
    add_test(NAME ${entry} COMMAND ${name})
    set_tests_properties(${entry} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT} COST ${ARG_COST}
                                             ENVIRONMENT "${environment}")
  endforeach()
endfunction()

# What a test program starts is built before it.
function(tessera_test_runs name)
  foreach(program ${ARGN})
    add_dependencies(${name} ${program})
  endforeach()
  foreach(pair TESSERA_PROGRAM=tessera-lab TESSERA_ALONE=tessera VIDEO_HELPER=tessera-video)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 1 program)
    if("${program}" IN_LIST ARGN)
      list(GET pair 0 define)
      target_compile_definitions(${name} PRIVATE ${define}="$<TARGET_FILE:${program}>")
    endif()
  endforeach()
endfunction()

# Whether tests have the simulated device: its fibers switch by hand-written code, and sanitizers know
# nothing of their stacks.
set(TESSERA_SIMULATED_DEVICE OFF)
if(TESSERA_TESTS AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT TESSERA_SANITIZE)
  set(TESSERA_SIMULATED_DEVICE ON)
endif()

# Runs cases of a test program once more on devices with memory of their own (tests/support/chosen_backend.h).
#   tessera_device_runs(golden_tests vq FILTER "VqParity.*" [CUDA_FILTER "*"])
function(tessera_device_runs name cases)
  cmake_parse_arguments(ARG "" "FILTER;CUDA_FILTER" "" ${ARGN})
  if(NOT ARG_CUDA_FILTER)
    set(ARG_CUDA_FILTER ${ARG_FILTER})
  endif()
  target_link_libraries(${name} PRIVATE test_devices)
  tessera_device_test(${name} "${ARG_CUDA_FILTER}" 90)
  set(devices cuda)
  if(TESSERA_SIMULATED_DEVICE)
    list(APPEND devices simt)
  endif()
  foreach(device ${devices})
    set(filter ${ARG_FILTER})
    set(labels golden)
    if(device STREQUAL "cuda")
      set(filter ${ARG_CUDA_FILTER})
      list(APPEND labels gpu)
    endif()
    add_test(NAME ${name}_${cases}_${device} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${name}_${cases}_${device} PROPERTIES LABELS "${labels}" TIMEOUT 300
      SKIP_RETURN_CODE 77 ENVIRONMENT TESSERA_TEST_DEVICE=${device})
  endforeach()
endfunction()
