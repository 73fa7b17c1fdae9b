set(TESSERA_UNITY "48" CACHE STRING "how many sources of a folder are compiled together; 1: each alone")

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

# Each file of a family names its parts as the others do (detect, parse, kForms), so these stay alone, and those
# of the folder's others that share names.
function(tessera_alone_families)
  foreach(source ${ARGN})
    file(STRINGS ${source} family REGEX "^extern constinit const Family" LIMIT_COUNT 1)
    if(family OR source MATCHES "/(chameleon_authors|generating_keys|gguf_config_write|quantised_keys|weight_roles)\\.cpp$")
      tessera_alone(${source})
    endif()
  endforeach()
endfunction()
