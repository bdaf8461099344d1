//! Addresses as the kernel reads and writes them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// Length of the longest address kind that is read: `sockaddr_in6`.
pub const MAX_SOCKADDR_BYTES: usize = 28;

/// Reads a `sockaddr_in` or `sockaddr_in6`; `None` for other kinds.
pub fn read(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some((Ipv4Addr::from(ip), port).into())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some((Ipv6Addr::from(ip), port).into())
        }
        _ => None,
    }
}

/// Writes an address as a `sockaddr_in` or `sockaddr_in6`.
pub fn write(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u16;
    let mut bytes = [&family.to_ne_bytes()[..], &address.port().to_be_bytes()].concat();
    match address {
        SocketAddr::V4(address) => {
            bytes.extend(address.ip().octets());
            bytes.resize(16, 0);
        }
        SocketAddr::V6(address) => {
            bytes.extend(address.flowinfo().to_ne_bytes());
            bytes.extend(address.ip().octets());
            bytes.extend(address.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// Returns the address in the form that a socket of this family accepts.
pub fn for_family(to: SocketAddrV4, v6: bool) -> SocketAddr {
    match v6 {
        true => (to.ip().to_ipv6_mapped(), to.port()).into(),
        false => to.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_kernel_are_read() {
        let mut v4 = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        v4.extend([0x1f, 0x90, 127, 0, 0, 1]);
        assert_eq!(read(&v4), Some("127.0.0.1:8080".parse().unwrap()));
        for address in ["127.9.1.4:80", "[::ffff:127.9.1.4]:80"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(read(&write(address)), Some(address));
        }
        let mut v6 = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        v6.extend([0, 80, 0, 0, 0, 0]);
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        assert_eq!(read(&v6), Some("[::1]:80".parse().unwrap()));
        for other in [&[][..], &[1], &v4[..7], &v6[..20], &[1, 0, 47, 116, 109, 112, 0, 0]] {
            assert_eq!(read(other), None, "{other:?}");
        }
    }
}
