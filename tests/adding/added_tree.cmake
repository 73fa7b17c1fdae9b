# Copies of files with what pages of docs/ add to them, in tree/ of the current build folder, as a
# target. NEW: files that the pages make; CHANGED: files that they change.
#   tessera_added_tree(adding_op_tree PAGES adding-an-op CHANGED engine/ops/elementwise.h)
include_guard(DIRECTORY)
function(tessera_added_tree name)
  cmake_parse_arguments(ARG "" "" "PAGES;NEW;CHANGED" ${ARGN})
  set(tree ${CMAKE_CURRENT_BINARY_DIR}/tree)
  set(apply ${PROJECT_SOURCE_DIR}/tests/adding/apply_page.sh)
  set(pages ${ARG_PAGES})
  list(TRANSFORM pages REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/docs/\\1.md")
  set(added ${ARG_NEW} ${ARG_CHANGED})
  list(TRANSFORM added PREPEND ${tree}/)
  set(originals ${ARG_CHANGED})
  list(TRANSFORM originals PREPEND ${PROJECT_SOURCE_DIR}/)
  add_custom_command(OUTPUT ${added}
    COMMAND bash ${apply} ${PROJECT_SOURCE_DIR} ${tree} ${pages}
    DEPENDS ${pages} ${originals} ${apply}
    COMMENT "Adding what docs/ says to copies of files: ${ARG_PAGES}")
  add_custom_target(${name} DEPENDS ${added})
endfunction()

# Files of the tree come before those of the same name elsewhere. One such program is built and run
# at a time: each compiles what others share a build tree for.
function(tessera_adds name tree_target)
  set(tree ${CMAKE_CURRENT_BINARY_DIR}/tree)
  target_include_directories(${name} BEFORE PRIVATE ${tree})
  target_compile_definitions(${name} PRIVATE TESSERA_ADDED_TREE="${tree}")
  add_dependencies(${name} ${tree_target})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # its files are copies of others'
  set_tests_properties(${name} PROPERTIES RESOURCE_LOCK adding)
endfunction()

# The simulated device with some of its sources taken from the tree, others compiled anew with its
# headers. Sets `devices` to what a program links.
#   tessera_added_device(adding_op_device adding_op_tree SOURCES ${tree}/a.cu EXCLUDE "a\\.cu")
function(tessera_added_device name tree_target)
  cmake_parse_arguments(ARG "" "EXCLUDE" "SOURCES" ${ARGN})
  set(devices "" PARENT_SCOPE)
  if(NOT TARGET simulated_device)
    return()
  endif()
  add_library(${name} SHARED ${ARG_SOURCES}
    "$<FILTER:$<TARGET_OBJECTS:simulated_device>,EXCLUDE,${ARG_EXCLUDE}>")
  set_source_files_properties(${ARG_SOURCES} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/simt/include
    ${CMAKE_CURRENT_BINARY_DIR}/tree ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -fvisibility=hidden -Wno-unknown-pragmas)
  target_link_libraries(${name} PRIVATE engine_backend_parts engine_core)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  add_dependencies(${name} ${tree_target})
  set(devices ${name} PARENT_SCOPE)
endfunction()
