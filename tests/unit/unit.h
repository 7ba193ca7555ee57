/* What every cmocka test includes, in the order that cmocka asks for. */
#ifndef KVR_TESTS_UNIT_H
#define KVR_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
