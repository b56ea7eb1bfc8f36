/* What every test includes first: cmocka, with the headers it needs before it, and the usual C library. */
#ifndef ATHANOR_TEST_H
#define ATHANOR_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#endif
