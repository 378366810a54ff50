# The install tree: library, headers, CMake package, pkg-config file, command, man page, licence.
include(CMakePackageConfigHelpers)
set(attn_package ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
set(attn_pkgconfig ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(attn_installed attn)
if(ATTN_STATIC)
  list(APPEND attn_installed attn_static)
endif()
install(TARGETS ${attn_installed} EXPORT attnTargets)
install(FILES include/attn/attn.h include/attn/module.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attn)
install(EXPORT attnTargets NAMESPACE attn:: DESTINATION ${attn_package})
# Modules of others are put here; the folder is searched without any setting.
install(DIRECTORY DESTINATION ${CMAKE_INSTALL_LIBDIR}/attn/modules)

configure_package_config_file(cmake/attnConfig.cmake.in ${CMAKE_BINARY_DIR}/attnConfig.cmake
  INSTALL_DESTINATION ${attn_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/attnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/attnConfig.cmake ${CMAKE_BINARY_DIR}/attnConfigVersion.cmake
  DESTINATION ${attn_package})

# Paths in attn.pc are relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH attn_pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" attn_pc_prefix "${attn_pc_prefix}")
file(RELATIVE_PATH attn_pc_libdir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH attn_pc_includedir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
set(attn_pc_dlpack "")
if(NOT DLPACK_INCLUDE IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
  set(attn_pc_dlpack " -I${DLPACK_INCLUDE}")
endif()
configure_file(cmake/attn.pc.in ${CMAKE_BINARY_DIR}/attn.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/attn.pc DESTINATION ${attn_pkgconfig})

if(TARGET attn_command)
  file(RELATIVE_PATH attn_rpath ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(attn_command PROPERTIES INSTALL_RPATH "$ORIGIN/${attn_rpath}")
  install(TARGETS attn_command)
  # The program prints its own man page, so the page is never stale; a cross build cannot ask it.
  if(NOT CMAKE_CROSSCOMPILING)
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/attn.1 DEPENDS attn_command
      COMMAND attn_command docs man > ${CMAKE_BINARY_DIR}/attn.1)
    add_custom_target(attn_man ALL DEPENDS ${CMAKE_BINARY_DIR}/attn.1)
    install(FILES ${CMAKE_BINARY_DIR}/attn.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endif()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
