// SHA-256 (FIPS 180-4). Pure.
#ifndef VJ_SHA256_H
#define VJ_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define VJ_SHA256_SIZE 32u

void vj_sha256(const void *data, size_t size, uint8_t digest[VJ_SHA256_SIZE]);

#endif
