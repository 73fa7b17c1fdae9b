# One library per folder. A library lists what it may include; the layering test holds it to that.
#   tessera_library(engine_ops DEPS engine_backend SOURCES a.cpp b.cpp)
function(tessera_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS})
endfunction()

# Tests of parsers of strangers' files; ./test builds this target again with sanitizers.
if(TESSERA_TESTS)
  add_custom_target(parser_tests)
endif()

# A test program, one ctest entry. PARSER: it reads hostile files, so it also runs under sanitizers.
#   tessera_test(core_test LABEL unit DEPS engine_core SOURCES core_test.cpp [TIMEOUT s] [PARSER])
function(tessera_test name)
  cmake_parse_arguments(ARG "PARSER" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             TESSERA_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_compile_options(${name} PRIVATE -O1)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(ARG_PARSER)
    list(APPEND ARG_LABEL parser)
    add_dependencies(parser_tests ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
