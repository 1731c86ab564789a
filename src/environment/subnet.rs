//! IPv4 ranges: which part of a pool is free. Pure.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A range of addresses, such as `10.200.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subnet {
    base: u32,
    prefix: u8,
}

impl Subnet {
    /// The range around an address.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Option<Subnet> {
        (prefix <= 32).then(|| Subnet { base: u32::from(address) & mask(prefix), prefix })
    }

    /// True when both hold an address in common.
    pub fn overlaps(&self, other: &Subnet) -> bool {
        let wider = mask(self.prefix.min(other.prefix));
        self.base & wider == other.base & wider
    }

    /// Containers that fit: all addresses but network, broadcast and gateway.
    pub fn room(&self) -> u64 {
        (1_u64 << (32 - u32::from(self.prefix))).saturating_sub(3)
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.prefix)
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let wrong = || format!("{text:?} is no IPv4 range such as 10.200.0.0/16");
        let (address, prefix) = text.trim().split_once('/').ok_or_else(wrong)?;
        let address = address.parse().map_err(|_| wrong())?;
        Subnet::new(address, prefix.parse().map_err(|_| wrong())?).ok_or_else(wrong)
    }
}

/// A range that networks are cut from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    base: Subnet,
    size: u8,
}

impl Pool {
    /// Networks of `/size` out of `base`; None when they don't fit, or are smaller than `/29`.
    pub fn new(base: Subnet, size: u8) -> Option<Pool> {
        (size >= base.prefix && size <= 29).then_some(Pool { base, size })
    }

    /// How many networks it holds in all.
    pub fn capacity(&self) -> u64 {
        1_u64 << u32::from(self.size - self.base.prefix)
    }

    /// Its networks that touch none of `used`, in order.
    pub fn free<'a>(&self, used: &'a [Subnet]) -> impl Iterator<Item = Subnet> + use<'a> {
        let (base, size) = (self.base.base, self.size);
        let step = 1_u64 << (32 - u32::from(size));
        (0..self.capacity())
            .filter_map(move |n| u32::try_from(u64::from(base) + n * step).ok())
            .map(move |base| Subnet { base, prefix: size })
            .filter(move |s| !used.iter().any(|u| u.overlaps(s)))
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in /{}", self.base, self.size)
    }
}

/// The ranges of a kernel routing table (`/proc/net/route`), without the default route.
pub fn routes(text: &str) -> Vec<Subnet> {
    let hex = |word: &str| u32::from_str_radix(word, 16).ok().map(u32::swap_bytes);
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (base, mask) = (hex(words.get(1)?)?, hex(words.get(7)?)?);
            let prefix = u8::try_from(mask.leading_ones()).ok()?;
            (prefix > 0).then(|| Subnet::new(Ipv4Addr::from(base), prefix)).flatten()
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn net(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    #[test]
    fn the_free_part_of_a_pool_touches_nothing() {
        let pool = Pool::new(net("10.99.0.0/24"), 26).unwrap();
        assert_eq!(pool.capacity(), 4);
        let used = [net("10.99.0.64/28"), net("10.98.0.0/15"), net("192.168.0.0/16")];
        assert_eq!(pool.free(&used).count(), 0, "a wider range covers it all");
        let used = [net("10.99.0.64/28"), net("10.99.0.130/32")];
        let free: Vec<String> = pool.free(&used).map(|s| s.to_string()).collect();
        assert_eq!(free, ["10.99.0.0/26", "10.99.0.192/26"]);
        assert_eq!(net("10.99.0.0/24").room(), 253);
        assert!(Pool::new(net("10.0.0.0/24"), 30).is_none());
        assert!(Pool::new(net("10.0.0.0/24"), 16).is_none());
        assert!("10.0.0.0/33".parse::<Subnet>().is_err());
        assert!("10.0.0/8".parse::<Subnet>().is_err());
    }

    #[test]
    fn routes_are_read_in_the_byte_order_of_the_kernel() {
        let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\nshort line\n";
        assert_eq!(routes(text), [net("172.17.0.0/16")]);
    }
}
