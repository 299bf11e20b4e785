# The Python package in build/python/weir, for its tests, where there is a Python with its headers and NumPy.
# `pip install .` does not use this: python/weir_build.py.
set(python_why "there is no Python 3.10 or later with its headers and NumPy (Debian: python3-dev python3-numpy)")
set(python "")
set(python_probe "import sys, sysconfig, os, numpy
assert sys.version_info >= (3, 10)
folder = sysconfig.get_path('include')
assert os.path.exists(os.path.join(folder, 'Python.h'))
print(folder)")
foreach(candidate python3 /usr/bin/python3)
  execute_process(COMMAND ${candidate} -c "${python_probe}" OUTPUT_VARIABLE folder RESULT_VARIABLE rc
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(rc STREQUAL "0" AND NOT python)
    set(python ${candidate})
    set(python_headers ${folder})
  endif()
endforeach()
if(WEIR_SANITIZE)
  set(python "")
  set(python_why "Python does not load libraries built for a sanitizer")
endif()
if(NOT python)
  suite_test(python weir ${CMAKE_COMMAND} -E echo "skipped: ${python_why}")
  return()
endif()

set(python_package ${PROJECT_BINARY_DIR}/python/weir)
glob(files python/src/*.c)
add_library(weir_python MODULE ${files})
target_include_directories(weir_python SYSTEM PRIVATE ${python_headers})
target_compile_definitions(weir_python PRIVATE Py_LIMITED_API=0x030A0000)
target_link_libraries(weir_python PRIVATE libweir)
set_target_properties(weir_python PROPERTIES PREFIX "" OUTPUT_NAME _weir SUFFIX .abi3.so
                      C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${python_package})
file(MAKE_DIRECTORY ${python_package})
glob(files python/weir/*)
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${file} ${python_package}/${name} SYMBOLIC)
endforeach()
suite_test(python weir ${python} tests/python/test_weir.py)
set_property(TEST python/weir APPEND PROPERTY ENVIRONMENT PYTHONPATH=${PROJECT_BINARY_DIR}/python
             PYTHONDONTWRITEBYTECODE=1)
suite_test(python types ${python} tests/python/test_types.py)
set_property(TEST python/types APPEND PROPERTY ENVIRONMENT PYTHONPATH=${PROJECT_BINARY_DIR}/python
             PYTHONDONTWRITEBYTECODE=1)
suite_test(python world ${python} tests/python/test_world.py)
set_property(TEST python/world APPEND PROPERTY ENVIRONMENT PYTHONPATH=${PROJECT_BINARY_DIR}/python
             PYTHONDONTWRITEBYTECODE=1)
if(WEIR_HAS_CUDA) # the same on GPUs, on the stand-ins
  suite_test(python weir_cuda ${python} tests/python/test_weir.py)
  set_property(TEST python/weir_cuda APPEND PROPERTY ENVIRONMENT PYTHONPATH=${PROJECT_BINARY_DIR}/python
               PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/standin
               XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/tests/standin/cache WEIR_DEVICE=cuda)
  foreach(comm auto nccl)
    if(comm STREQUAL nccl AND NOT TARGET standin_nccl)
      continue()
    endif()
    suite_test(python world_${comm} ${python} tests/python/test_world.py Worlds.test_torchrun Worlds.test_shards
               Worlds.test_exchange Worlds.test_death)
    set_property(TEST python/world_${comm} APPEND PROPERTY ENVIRONMENT PYTHONPATH=${PROJECT_BINARY_DIR}/python
                 PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/standin
                 XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/tests/standin/cache WEIR_STANDIN_GPUS=3 WEIR_STANDIN_NCCL=
                 WEIR_DEVICE=cuda WEIR_COMM=${comm})
  endforeach()
endif()
suite_test(python wheel bash tests/python/wheel.sh ${python} ${PROJECT_BINARY_DIR})
