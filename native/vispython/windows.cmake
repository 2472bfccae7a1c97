# The worker of Windows, as scripts/cross_build.py builds it: each is one set() of file names.

set(VISCORE_WINDOWS_SOURCES
  core.c channel.c codec.c codec_decode.c codec_encode.c compile.c hook.c methods.c
  windows_boot.c windows_clock.c windows_confine.c windows_control.c windows_link.c
  ../visjail/windows_monitor.c)
set(VISPYTHON_WINDOWS_SOURCES windows_loader.c)
