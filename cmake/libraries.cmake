# libweir.so and libweir.a, with the names of the public header only. Symbols are hidden unless weir.h makes
# them visible; in the archive, which is one object, hidden ones are made local.
set_target_properties(weir_objects PROPERTIES C_VISIBILITY_PRESET hidden
                      POSITION_INDEPENDENT_CODE ON)

add_library(libweir SHARED ${library_objects})
set_target_properties(libweir PROPERTIES OUTPUT_NAME weir LINKER_LANGUAGE C
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_include_directories(libweir INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(libweir PRIVATE m Threads::Threads ${CMAKE_DL_LIBS})
if(NOT WEIR_SANITIZE AND NOT WEIR_LIBFUZZER)
  target_link_options(libweir PRIVATE -Wl,-z,defs)
endif()
add_library(weir::weir ALIAS libweir)

set(WEIR_ARCHIVE ${PROJECT_BINARY_DIR}/libweir.a)
add_custom_command(
  OUTPUT ${WEIR_ARCHIVE}
  COMMAND ${CMAKE_LINKER} -r -o libweir-all.o --whole-archive $<TARGET_FILE:weir_core>
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden libweir-all.o
  COMMAND ${CMAKE_COMMAND} -E remove -f ${WEIR_ARCHIVE}
  COMMAND ${CMAKE_AR} rcs ${WEIR_ARCHIVE} libweir-all.o
  COMMAND ${CMAKE_COMMAND} -E remove -f libweir-all.o
  DEPENDS weir_core WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM
  COMMENT "Linking libweir.a")
add_custom_target(weir_archive DEPENDS ${WEIR_ARCHIVE})
add_library(weir_static INTERFACE)
add_dependencies(weir_static weir_archive)
target_include_directories(weir_static INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(weir_static INTERFACE ${WEIR_ARCHIVE} m Threads::Threads ${CMAKE_DL_LIBS})
add_library(weir::static ALIAS weir_static)
