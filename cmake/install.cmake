install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Of the Debian package alone, whose place it knows.
install(FILES assets/serve/tessera.service DESTINATION lib/systemd/system COMPONENT service EXCLUDE_FROM_ALL)
install(FILES LICENSE DESTINATION share/doc/tessera RENAME copyright COMPONENT service EXCLUDE_FROM_ALL)
