// A function that is looked up by its name.
#pragma once

#define XMCJAX_EXPORT extern "C" __attribute__((visibility("default")))
