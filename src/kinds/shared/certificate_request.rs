//! The certificate request (PKCS #10) inside of a CertificateSigningRequest: its subject, names, key and signature.
//!
//! Never: signs anything. Start reading at [`CertificateRequest::parse`].

use ring::signature::{RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{PemObject, SectionKind};
use std::net::IpAddr;
use x509_cert::der::asn1::{Any, ObjectIdentifier, OctetString};
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::request::{CertReq, ExtensionReq};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

/// Types of the parts of a subject.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const SERIAL_NUMBER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.5");
/// The other parts of a subject that descriptions show, with kubectl's names of them.
const SHOWN_PARTS: [(&str, ObjectIdentifier); 7] = [
    ("Organization", ORGANIZATION),
    ("Organizational Unit", ObjectIdentifier::new_unwrap("2.5.4.11")),
    ("Country", ObjectIdentifier::new_unwrap("2.5.4.6")),
    ("Locality", ObjectIdentifier::new_unwrap("2.5.4.7")),
    ("Province", ObjectIdentifier::new_unwrap("2.5.4.8")),
    ("StreetAddress", ObjectIdentifier::new_unwrap("2.5.4.9")),
    ("PostalCode", ObjectIdentifier::new_unwrap("2.5.4.17")),
];
/// The attribute with the requested extensions, and the extension with alternative names.
const EXTENSIONS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// The type of RSA signatures of SHA1 hashes, which the verifier of TLS does not know.
const SHA1_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.5");

/// The usages that a certificate can be requested for.
pub const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// A certificate request whose signature is good.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    /// The subject.
    pub subject: Subject,
    /// The alternative names, as they were requested.
    pub alternative_names: Option<OctetString>,
    /// The numbers of names of each type.
    pub names: NameCounts,
    /// The key of the requester.
    pub key: SubjectPublicKeyInfoOwned,
}

/// The subject of a request or certificate: a user and the groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The whole.
    pub name: Name,
    /// CN: the user.
    pub common_name: String,
    /// O: the groups.
    pub organizations: Vec<String>,
}

/// Numbers of alternative names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// Names of hosts.
    pub dns: usize,
    /// Addresses.
    pub ip: usize,
    /// Addresses of mail.
    pub email: usize,
    /// URIs.
    pub uri: usize,
}

impl CertificateRequest {
    /// Reads a PEM block and checks the signature; the errors are those of Kubernetes where it has its own words.
    pub fn parse(pem: &[u8]) -> Result<CertificateRequest, String> {
        let block = <(SectionKind, Vec<u8>)>::from_pem_slice(pem).ok();
        let Some((SectionKind::Csr, der)) = block else {
            return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
        };
        let request = CertReq::from_der(&der).map_err(|error| format!("asn1: structure error: {error}"))?;
        check_signature(&request)?;
        let extensions = requested_extensions(&request);
        let names = extensions.into_iter().find(|extension| extension.extn_id == ALTERNATIVE_NAMES);
        let names = names.map(|extension| extension.extn_value);
        let counts = names.as_ref().map(|names| count_names(names.as_bytes())).transpose()?.unwrap_or_default();
        Ok(CertificateRequest {
            subject: Subject::read(request.info.subject),
            alternative_names: names,
            names: counts,
            key: request.info.public_key,
        })
    }
}

impl CertificateRequest {
    /// Returns the names of hosts and the addresses that the certificate is to have.
    pub fn hosts(&self) -> Vec<String> {
        self.select_names(|name| host_name(name).or_else(|| address(name)))
    }

    /// Returns the alternative names of each type, with kubectl's name of the type.
    pub fn names_by_type(&self) -> [(&'static str, Vec<String>); 4] {
        let email = |name: &GeneralName| match name {
            GeneralName::Rfc822Name(name) => Some(name.as_str().to_owned()),
            _ => None,
        };
        let uri = |name: &GeneralName| match name {
            GeneralName::UniformResourceIdentifier(name) => Some(name.as_str().to_owned()),
            _ => None,
        };
        [
            ("DNS Names", self.select_names(host_name)),
            ("Email Addresses", self.select_names(email)),
            ("URIs", self.select_names(uri)),
            ("IP Addresses", self.select_names(address)),
        ]
    }

    fn select_names(&self, select: impl Fn(&GeneralName) -> Option<String>) -> Vec<String> {
        let names = self.alternative_names.as_ref().and_then(|names| SubjectAltName::from_der(names.as_bytes()).ok());
        names.iter().flat_map(|names| &names.0).filter_map(select).collect()
    }
}

fn host_name(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
        _ => None,
    }
}

fn address(name: &GeneralName) -> Option<String> {
    let GeneralName::IpAddress(bytes) = name else { return None };
    let v4 = <[u8; 4]>::try_from(bytes.as_bytes()).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes.as_bytes()).map(IpAddr::from);
    v4.or(v6).ok().map(|address| address.to_string())
}

impl Subject {
    /// Reads the parts of a name.
    pub fn read(name: Name) -> Subject {
        // As in Go, the last common name counts.
        let common_name = texts(&name, COMMON_NAME).pop().unwrap_or_default();
        Subject { common_name, organizations: texts(&name, ORGANIZATION), name }
    }

    /// Returns the serial number; empty when absent.
    pub fn serial_number(&self) -> String {
        texts(&self.name, SERIAL_NUMBER).pop().unwrap_or_default()
    }

    /// Returns the other parts that descriptions show, with kubectl's names of them.
    pub fn shown_parts(&self) -> impl Iterator<Item = (&'static str, Vec<String>)> {
        SHOWN_PARTS.into_iter().map(|(label, part)| (label, texts(&self.name, part)))
    }
}

/// The texts of all parts of a name that have a type.
fn texts(name: &Name, wanted: ObjectIdentifier) -> Vec<String> {
    let parts = name.0.iter().flat_map(|part| part.0.iter());
    parts.filter(|part| part.oid == wanted).filter_map(|part| text(&part.value)).collect()
}

/// The text of a part of a subject.
fn text(value: &Any) -> Option<String> {
    String::from_utf8(value.value().to_vec()).ok()
}

fn requested_extensions(request: &CertReq) -> Vec<Extension> {
    let attribute = request.info.attributes.iter().find(|attribute| attribute.oid == EXTENSIONS);
    let value = attribute.and_then(|attribute| attribute.values.iter().next());
    let extensions = value.and_then(|value| ExtensionReq::from_der(&value.to_der().ok()?).ok());
    extensions.map(|extensions| extensions.0).unwrap_or_default()
}

fn count_names(der: &[u8]) -> Result<NameCounts, String> {
    let names =
        SubjectAltName::from_der(der).map_err(|error| format!("x509: invalid subject alternative names: {error}"))?;
    let mut counts = NameCounts::default();
    for name in names.0 {
        match name {
            GeneralName::DnsName(_) => counts.dns += 1,
            GeneralName::IpAddress(_) => counts.ip += 1,
            GeneralName::Rfc822Name(_) => counts.email += 1,
            GeneralName::UniformResourceIdentifier(_) => counts.uri += 1,
            _ => {}
        }
    }
    Ok(counts)
}

/// Whether the requester has the key.
fn check_signature(request: &CertReq) -> Result<(), String> {
    let unknown = "x509: cannot verify signature: algorithm unimplemented".to_owned();
    let content = |der: Result<Vec<u8>, _>| der.ok().and_then(|der| sequence_content(&der).map(<[u8]>::to_vec));
    let (Some(signed_by), Some(key_type)) =
        (content(request.algorithm.to_der()), content(request.info.public_key.algorithm.to_der()))
    else {
        return Err(unknown);
    };
    let provider = default_provider();
    let mut fitting = provider.signature_verification_algorithms.all.iter().filter(|algorithm| {
        algorithm.signature_alg_id().as_ref() == signed_by && algorithm.public_key_alg_id().as_ref() == key_type
    });
    let (Some(key), Some(signature), Ok(message)) =
        (request.info.public_key.subject_public_key.as_bytes(), request.signature.as_bytes(), request.info.to_der())
    else {
        return Err(unknown);
    };
    let is_good = match fitting.next() {
        Some(algorithm) => algorithm.verify_signature(key, &message, signature).is_ok(),
        // As in Go, SHA1 suffices to prove that the requester has the key.
        None if request.algorithm.oid == SHA1_WITH_RSA => {
            UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, key)
                .verify(&message, signature)
                .is_ok()
        }
        None => return Err(unknown),
    };
    if is_good { Ok(()) } else { Err("x509: signature verification failure".to_owned()) }
}

/// The content of a DER sequence, without its tag and length.
fn sequence_content(der: &[u8]) -> Option<&[u8]> {
    let any = x509_cert::der::asn1::AnyRef::from_der(der).ok()?;
    Some(any.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request whose RSA signature is one of a SHA1 hash.
    const SHA1: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
        MIICVDCCATwCAQAwDzENMAsGA1UEAwwEamFuZTCCASIwDQYJKoZIhvcNAQEBBQAD\n\
        ggEPADCCAQoCggEBAMVWaItHdUlJu0tySZr3EHICJunQ81RmNTUY74clB7jCHqU7\n\
        taym+nV+cc/34NyuYEuQzAB2Wm0FkXOKfSYzP51ITvUB3AYaO1XR0MUoNOolLU9F\n\
        eQmFtED+CP8uTGDvxURhLiDzDBiVVDcLebgg6XcVUh7ebrMd1QxjVecqXxe7nJs3\n\
        H7Dlle20zmfGl+mRYVXmzpR7RgQ1PNPTK9T/b5H4gwyCrGZAbq6dwZcvaSwjPFWR\n\
        w05/9Tiw05d8Dt9BY96FqN+MDhS04Z11t1WvWNTxytGSlQU6lZEjY9+L1FXbXBMv\n\
        BvV1XDYv/IlNORg7y7GqcJpwIeGDUVe4b5SkCl8CAwEAAaAAMA0GCSqGSIb3DQEB\n\
        BQUAA4IBAQCRgJvr9ECvNNMPtoBwkcB0xl56VofMgxyA05y9wwL22SpXrE71FAmA\n\
        1RygV5rExJk2wotZPaVkawwj/a9IGj3PXK2qo+xHMhkTSHohwp7D35VUds/lWS8I\n\
        JsISc+f/0zuUkzKbuEiKzfGVnxjrY81MrTmrRohD62qndL4g/Zti3QXjfLiwPKaJ\n\
        cQYJqhtrLmde/4jTwaIfd3jizs5QLuYm+BOFqF+D0CseprwmPhdVjIKGsIclAIaZ\n\
        p5m4dolBjV6pCUw1qhY41844SIysv+riyowP4OJnwmUEgQEVaTBkbn1wWEbhDIH8\n\
        tBOoYdnJ3OryeGB437p9STKVhFdQeqX2\n\
        -----END CERTIFICATE REQUEST-----\n";

    #[test]
    fn signature_with_sha1_is_checked() {
        let request = CertificateRequest::parse(SHA1.as_bytes()).unwrap();
        assert_eq!(request.subject.common_name, "jane");
        // One digit of the signature is another.
        let forged = SHA1.replace("CRgJvr9E", "CRgJvr9F");
        let refused = CertificateRequest::parse(forged.as_bytes()).unwrap_err();
        assert_eq!(refused, "x509: signature verification failure");
    }
}
