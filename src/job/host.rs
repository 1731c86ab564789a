//! Whose machine a host is, by its name or address alone.

use core::net::IpAddr;

/// Whether a host, as it stands in an address, is of this machine or its networks: loopback, private and
/// link-local addresses, names without dots and those below `.local` and `.localhost`. A proxy is for the
/// others.
pub fn is_near(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified(),
        Ok(IpAddr::V6(ip)) => {
            let first = ip.segments().first().copied().unwrap_or(0);
            // fc00::/7 is private, fe80::/10 link-local.
            ip.is_loopback() || ip.is_unspecified() || first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80
        }
        Err(_) => !bare.is_empty() && (!bare.contains('.') || bare.ends_with(".local") || bare.ends_with(".localhost")),
    }
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn hosts_are_near_or_far() {
        for near in ["127.0.0.1", "10.1.2.3", "[::1]", "[fe80::1]", "[fd00::2]", "gpu-7", "box.local", "0.0.0.0"] {
            assert!(is_near(near), "{near}");
        }
        for far in ["8.8.8.8", "[2001:db8::1]", "api.example.org", "172.32.0.1", ""] {
            assert!(!is_near(far), "{far}");
        }
    }
}
