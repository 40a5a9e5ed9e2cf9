/* Enough JSON to read a state and a config.json: the text is checked once as a whole, then looked into without copies. */
#include "hook.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 500

static const char *blank(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* The end of the string that begins at `at`, NULL if it is none. */
static const char *string_end(const char *at, const char *end) {
    if (at >= end || *at != '"')
        return NULL;
    for (at++; at < end; at++) {
        if ((unsigned char)*at < 0x20)
            return NULL;
        if (*at == '"')
            return at + 1;
        if (*at != '\\')
            continue;
        if (++at >= end || !strchr("\"\\/bfnrtu", *at) || !*at)
            return NULL;
        for (int i = 0; *at == 'u' && i < 4; i++)
            if (at + 1 + i >= end || !is_hex(at[1 + i]))
                return NULL;
    }
    return NULL;
}

static const char *literal_end(const char *at, const char *end) {
    const char *from = at;
    while (at < end && (strchr("+-.", *at) ? *at : ((*at | 32) >= 'a' && (*at | 32) <= 'z') || (*at >= '0' && *at <= '9')))
        at++;
    size_t length = at - from;
    if (length == 0)
        return NULL;
    if ((length == 4 && !memcmp(from, "true", 4)) || (length == 5 && !memcmp(from, "false", 5)) ||
        (length == 4 && !memcmp(from, "null", 4)))
        return at;
    return *from == '-' || (*from >= '0' && *from <= '9') ? at : NULL;
}

static const char *value_end(const char *at, const char *end, int depth) {
    at = blank(at, end);
    if (at >= end || depth > MOST_DEPTH)
        return NULL;
    if (*at == '"')
        return string_end(at, end);
    if (*at != '{' && *at != '[')
        return literal_end(at, end);
    bool object = *at == '{';
    char close = object ? '}' : ']';
    at = blank(at + 1, end);
    if (at < end && *at == close)
        return at + 1;
    while (at < end) {
        if (object) {
            at = string_end(blank(at, end), end);
            if (!at || (at = blank(at, end)) >= end || *at != ':')
                return NULL;
            at++;
        }
        at = value_end(at, end, depth + 1);
        if (!at || (at = blank(at, end)) >= end)
            return NULL;
        if (*at == close)
            return at + 1;
        if (*at != ',')
            return NULL;
        at++;
    }
    return NULL;
}

bool json_valid(const char *data, size_t length, struct json *value) {
    const char *end = data + length, *from = blank(data, end), *to = value_end(from, end, 0);
    if (!to || blank(to, end) != end)
        return false;
    *value = (struct json){from, to};
    return true;
}

bool json_get(struct json object, const char *name, struct json *value) {
    bool found = false;
    if (*object.from != '{')
        return false;
    const char *at = blank(object.from + 1, object.to);
    while (*at == '"') {
        struct json key = {at, string_end(at, object.to)};
        at = blank(key.to, object.to) + 1; /* the colon */
        struct json each = {blank(at, object.to), value_end(at, object.to, 0)};
        char *key_text = json_text(key);
        if (key_text && !strcmp(key_text, name)) { /* the last of equal names, as other readers do */
            *value = each;
            found = true;
        }
        free(key_text);
        at = blank(each.to, object.to);
        if (*at == ',')
            at = blank(at + 1, object.to);
    }
    return found;
}

/* The element after `*element` (from NULL: the first); false at the end. */
bool json_next(struct json array, struct json *element) {
    if (*array.from != '[')
        return false;
    const char *at = blank(element->from ? element->to : array.from + 1, array.to);
    if (*at == ',')
        at = blank(at + 1, array.to);
    if (*at == ']')
        return false;
    *element = (struct json){at, value_end(at, array.to, 0)};
    return true;
}

static unsigned hex4(const char *at) {
    unsigned value = 0;
    for (int i = 0; i < 4; i++)
        value = value * 16 + (at[i] <= '9' ? at[i] - '0' : (at[i] | 32) - 'a' + 10);
    return value;
}

static char *utf8(char *to, unsigned point) {
    if (point < 0x80) {
        *to++ = point;
    } else if (point < 0x800) {
        *to++ = 0xC0 | point >> 6;
        *to++ = 0x80 | (point & 0x3F);
    } else if (point < 0x10000) {
        *to++ = 0xE0 | point >> 12;
        *to++ = 0x80 | (point >> 6 & 0x3F);
        *to++ = 0x80 | (point & 0x3F);
    } else {
        *to++ = 0xF0 | point >> 18;
        *to++ = 0x80 | (point >> 12 & 0x3F);
        *to++ = 0x80 | (point >> 6 & 0x3F);
        *to++ = 0x80 | (point & 0x3F);
    }
    return to;
}

char *json_text(struct json value) {
    if (*value.from != '"')
        return NULL;
    char *result = malloc(value.to - value.from), *to = result;
    if (!result)
        die("no memory");
    for (const char *at = value.from + 1; at < value.to - 1; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        const char *names = "bfnrt", *found = strchr(names, *++at);
        if (*at == 'u') {
            unsigned point = hex4(at + 1);
            at += 4;
            if (point >= 0xD800 && point < 0xDC00 && at[1] == '\\' && at[2] == 'u') {
                unsigned low = hex4(at + 3);
                if (low >= 0xDC00 && low < 0xE000) {
                    point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
                    at += 6;
                }
            }
            to = utf8(to, point ? point : '?'); /* a path with a null byte names nothing */
        } else {
            *to++ = found ? "\b\f\n\r\t"[found - names] : *at;
        }
    }
    *to = 0;
    return result;
}
