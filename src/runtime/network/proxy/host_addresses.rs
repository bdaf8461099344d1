//! The addresses at which other machines reach this one.

use crate::world::policy::Cidr;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Returns the machine's addresses within these blocks, except loopback.
pub fn addresses(within: &[Cidr]) -> Vec<Ipv4Addr> {
    if within.is_empty() {
        return Vec::new();
    }
    let all = local(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default());
    let is_meant = |address: &Ipv4Addr| !address.is_loopback() && within.iter().any(|block| block.contains(*address));
    all.into_iter().filter(is_meant).collect()
}

/// Returns all of the machine's addresses, except loopback.
pub fn own_addresses() -> Vec<Ipv4Addr> {
    addresses(&[Cidr { address: Ipv4Addr::UNSPECIFIED, bits: 0 }])
}

/// Returns the local addresses from the kernel's routing table: each is in the line before `/32 host LOCAL`.
fn local(trie: &str) -> BTreeSet<Ipv4Addr> {
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let own = lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL");
    own.filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_parsed() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n           |-- 127.0.0.1\n              \
                    /32 host LOCAL\n           |-- 192.0.2.0\n              /24 link UNICAST\n           |-- 192.0.2.2\n              \
                    /32 host LOCAL\n        |-- 192.0.2.255\n           /32 link BROADCAST\n";
        assert_eq!(local(trie), BTreeSet::from([Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 2)]));
        assert!(addresses(&[]).is_empty());
    }
}
