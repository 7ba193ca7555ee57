/* Python's methods of strings, for the table of methods. */
#ifndef KVR_TOKEN_TEMPLATE_METHOD_H
#define KVR_TOKEN_TEMPLATE_METHOD_H

#include "token/template_internal.h"

#define METHOD(name)                                                                               \
    struct value kvr_method_##name(struct run *run, struct value self, const struct call *call)

void kvr_method_no_arguments(struct run *run, const struct call *call, const char *method);
struct text *kvr_method_need_text(struct run *run, struct value value, const char *what);

METHOD(capitalize);
METHOD(casefold);
METHOD(center);
METHOD(count);
METHOD(endswith);
METHOD(expandtabs);
METHOD(find_text);
METHOD(format);
METHOD(format_map);
METHOD(index);
METHOD(isalnum);
METHOD(isalpha);
METHOD(isascii);
METHOD(isdecimal);
METHOD(isdigit);
METHOD(isidentifier);
METHOD(islower);
METHOD(isnumeric);
METHOD(isprintable);
METHOD(isspace);
METHOD(istitle);
METHOD(isupper);
METHOD(join);
METHOD(ljust);
METHOD(lower);
METHOD(lstrip);
METHOD(partition);
METHOD(removeprefix);
METHOD(removesuffix);
METHOD(replace);
METHOD(rfind);
METHOD(rindex);
METHOD(rjust);
METHOD(rpartition);
METHOD(rsplit);
METHOD(rstrip);
METHOD(split);
METHOD(splitlines);
METHOD(startswith);
METHOD(strip);
METHOD(swapcase);
METHOD(title);
METHOD(upper);
METHOD(zfill);

#endif
