# Debian packages: cpack -G DEB in a build folder. docs/decisions/0035-packages.md.
#   tessera         the program, its helpers, the library, bundled models, the service
#   tessera-view    the viewer, with what windows need
#   libtessera-dev  headers and the static library
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_VENDOR "The Tessera project")
set(CPACK_PACKAGE_CONTACT "The Tessera project <tessera@example.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "images, videos and descriptions by autoregressive models")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program service viewer dev)
if(NOT TARGET tessera-view)
  list(REMOVE_ITEM CPACK_COMPONENTS_ALL viewer)
endif()
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION graphics)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/bin ${PROJECT_BINARY_DIR}/apps/library)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME tessera)
set(CPACK_DEBIAN_VIEWER_PACKAGE_NAME tessera-view)
set(CPACK_DEBIAN_VIEWER_PACKAGE_DEPENDS "tessera (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libtessera-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "tessera (= ${PROJECT_VERSION}), libpcre2-dev, libpng-dev, libutf8proc-dev, nettle-dev, zlib1g-dev")  # tessera.pc names them
include(CPack)
foreach(group program viewer dev)
  cpack_add_component_group(${group})
  cpack_add_component(${group} GROUP ${group})
endforeach()
cpack_add_component(service GROUP program)
