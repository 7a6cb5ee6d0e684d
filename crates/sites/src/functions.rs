//! Functions that write what their caller points them to, in the caller's name: of the C library, libpmem and libpmemobj.

/// Which argument says where the function writes; `None` for a function that is not known to write for its caller.
pub fn destination(function: &str) -> Option<u32> {
    let plain = plain(function);
    if let Some(rest) = plain.strip_prefix("pmemobj_").or_else(|| plain.strip_prefix("pmem_")) {
        let copies = ["memcpy", "memmove", "memset"]
            .iter()
            .any(|name| rest.starts_with(name));
        // pmemobj's have the pool first.
        return copies.then_some(plain.starts_with("pmemobj_").into());
    }
    match plain {
        "memcpy" | "memmove" | "memset" | "mempcpy" | "memccpy" | "bzero" | "explicit_bzero" => Some(0),
        "strcpy" | "strncpy" | "strcat" | "strncat" | "stpcpy" | "stpncpy" | "strlcpy" | "strlcat" | "strxfrm" => {
            Some(0)
        }
        "wmemcpy" | "wmemmove" | "wmempcpy" | "wmemset" | "wcscpy" | "wcsncpy" | "wcscat" | "wcsncat" => Some(0),
        "sprintf" | "snprintf" | "vsprintf" | "vsnprintf" | "fread" | "fgets" | "gets" | "fread_unlocked" => Some(0),
        "bcopy" | "swab" | "read" | "pread" | "pread64" | "recv" | "recvfrom" => Some(1),
        _ => None,
    }
}

/// Without what fortification (`__memcpy_chk`) and non-interposable aliases (`__memcpy`) add to a name.
fn plain(function: &str) -> &str {
    match function.strip_prefix("__") {
        Some(rest) => rest.strip_suffix("_chk").unwrap_or(rest),
        None => function,
    }
}

#[cfg(test)]
mod tests {
    use super::destination;

    #[test]
    fn destinations() {
        assert_eq!(destination("memcpy"), Some(0));
        assert_eq!(destination("__memset_chk"), Some(0));
        assert_eq!(destination("pmem_memcpy_persist"), Some(0));
        assert_eq!(destination("pmemobj_memset"), Some(1));
        assert_eq!(destination("pmemobj_persist"), None);
        assert_eq!(destination("memcmp"), None);
    }
}
