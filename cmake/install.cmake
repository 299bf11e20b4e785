# `make install` (docs/install.md): the command, both libraries, the modules, and what finds them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(WEIR_MODULE_DIR ${CMAKE_INSTALL_LIBDIR}/weir)
set(WEIR_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/weir)

install(TARGETS weir RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS libweir LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${WEIR_ARCHIVE} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/weir/weir.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weir)
install(FILES ${PROJECT_SOURCE_DIR}/docs/weir.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
# The command itself writes completions. Where it cannot run, for it is for another machine, there are none.
install(CODE "foreach(shell bash zsh fish)
  set(file \"${PROJECT_BINARY_DIR}/completion.\${shell}\")
  execute_process(COMMAND \"$<TARGET_FILE:weir>\" completion \${shell} OUTPUT_FILE \"\${file}\"
                  RESULT_VARIABLE rc ERROR_QUIET)
  if(NOT rc STREQUAL \"0\")
    file(REMOVE \"\${file}\")
  endif()
endforeach()")
install(FILES ${PROJECT_BINARY_DIR}/completion.bash RENAME weir OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/completion.zsh RENAME _weir OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PROJECT_BINARY_DIR}/completion.fish RENAME weir.fish OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
foreach(flavour ${mpi_flavours})
  install(TARGETS weir_mpi_${flavour} LIBRARY DESTINATION ${WEIR_MODULE_DIR})
endforeach()
add_custom_target(weir_installed DEPENDS weir libweir ${WEIR_ARCHIVE})

# Both find the rest from where they are themselves: an installed tree may be moved.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
file(RELATIVE_PATH cmake_to_prefix /${WEIR_CMAKE_DIR} /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/weir.pc.in ${PROJECT_BINARY_DIR}/weir.pc @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/weir-config.cmake.in
               ${PROJECT_BINARY_DIR}/weir-config.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weir-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/weir-config.cmake ${PROJECT_BINARY_DIR}/weir-config-version.cmake
        DESTINATION ${WEIR_CMAKE_DIR})
