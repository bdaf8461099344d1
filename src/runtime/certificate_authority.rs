//! Signs certificates of users, nodes and servers with the cluster's authority (X.509).
//!
//! Knows: the authority's key, which the cluster's state keeps. Never: decides who may have a certificate.

use crate::kinds::shared::certificate_request::{CertificateRequest, NameCounts, Subject};
use crate::object::Time;
use crate::world::CertificateOrder;
use anyhow::{Context, Result, anyhow, bail};
use rcgen::{KeyPair, PublicKeyData};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use std::time::Duration;
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::certificate::{TbsCertificate, Version};
use x509_cert::der::asn1::{Any, BitString, GeneralizedTime, ObjectIdentifier, OctetString, SetOfVec, UtcTime};
use x509_cert::der::flagset::FlagSet;
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::pem::LineEnding;
use x509_cert::der::{Decode, DecodePem, Encode, EncodePem, Tag};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::name::{Name, RelativeDistinguishedName};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time as CertificateTime, Validity};

/// Algorithm of the signatures: ecdsa-with-SHA256.
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
/// Time by which a certificate starts in the past, for clients whose clocks are late.
const BACKDATE: i64 = 300;
/// Lifetime in seconds from which on the backdating shortens the certificate instead of adding to its lifetime.
const LONG: i64 = 8 * 3600;

/// The authority of a cluster.
pub struct CertificateAuthority {
    key: EcdsaKeyPair,
    random: SystemRandom,
    certificate: TbsCertificate,
}

/// A new key and its certificate.
pub struct ClientCertificate {
    /// The certificate, PEM.
    pub certificate: String,
    /// The private key, PEM.
    pub key: String,
}

impl CertificateAuthority {
    /// Reads the authority's certificate and key, both PEM.
    pub fn from_pem(certificate: &str, key: &str) -> Result<CertificateAuthority> {
        let certificate = Certificate::from_pem(certificate).context("the authority's certificate is damaged")?;
        let key = KeyPair::from_pem(key).context("the authority's key is damaged")?;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key.serialize_der(), &random)
            .map_err(|error| anyhow!("the authority's key is damaged: {error}"))?;
        Ok(CertificateAuthority { key, random, certificate: certificate.tbs_certificate })
    }

    /// Makes a key and a certificate for a user and groups.
    pub fn issue(&self, user: &str, groups: &[String], seconds: i64, now: Time) -> Result<ClientCertificate> {
        let key = KeyPair::generate()?;
        let request = CertificateRequest {
            subject: Subject::read(subject_name(user, groups)?),
            alternative_names: None,
            names: NameCounts::default(),
            key: SubjectPublicKeyInfoOwned::from_der(&key.subject_public_key_info())?,
        };
        let usages = ["digital signature", "key encipherment", "client auth"].map(str::to_owned);
        let certificate = self.sign(&CertificateOrder { request: &request, usages: &usages, seconds, now })?;
        Ok(ClientCertificate { certificate, key: key.serialize_pem() })
    }

    /// Signs a certificate; PEM.
    pub fn sign(&self, order: &CertificateOrder<'_>) -> Result<String> {
        let algorithm = AlgorithmIdentifierOwned { oid: ECDSA_SHA256, parameters: None };
        let content = TbsCertificate {
            version: Version::V3,
            serial_number: self.new_serial()?,
            signature: algorithm.clone(),
            issuer: self.certificate.subject.clone(),
            validity: self.validity(order)?,
            subject: order.request.subject.name.clone(),
            subject_public_key_info: order.request.key.clone(),
            issuer_unique_id: None,
            subject_unique_id: None,
            extensions: Some(self.extensions(order)?),
        };
        let signature = self.key.sign(&self.random, &content.to_der()?).map_err(|_| anyhow!("cannot sign"))?;
        let signature = BitString::from_bytes(signature.as_ref())?;
        let certificate = Certificate { tbs_certificate: content, signature_algorithm: algorithm, signature };
        Ok(certificate.to_pem(LineEnding::LF)?)
    }

    fn new_serial(&self) -> Result<SerialNumber> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes).map_err(|_| anyhow!("no randomness for a serial number"))?;
        // Positive, and never zero.
        bytes[0] = bytes[0] & 0x7f | 0x40;
        Ok(SerialNumber::new(&bytes)?)
    }

    /// From a moment before now on; not beyond the end of the authority.
    fn validity(&self, order: &CertificateOrder<'_>) -> Result<Validity> {
        let now = order.now.as_second();
        let begin = now.saturating_sub(BACKDATE).max(0);
        let end = if order.seconds < LONG { now } else { begin }.saturating_add(order.seconds);
        let last = self.certificate.validity.not_after.to_unix_duration().as_secs();
        let end = end.min(i64::try_from(last).unwrap_or(i64::MAX));
        Ok(Validity { not_before: moment(begin)?, not_after: moment(end)? })
    }

    fn extensions(&self, order: &CertificateOrder<'_>) -> Result<Vec<Extension>> {
        let (usage, extended) = parse_usages(order.usages)?;
        let mut extensions = Vec::new();
        if !usage.is_empty() {
            extensions.push(extension(true, &KeyUsage(usage))?);
        }
        if !extended.is_empty() {
            extensions.push(extension(false, &ExtendedKeyUsage(extended))?);
        }
        extensions.push(extension(true, &BasicConstraints { ca: false, path_len_constraint: None })?);
        if let Some((_, own)) = self.certificate.get::<SubjectKeyIdentifier>()? {
            let identifier =
                AuthorityKeyIdentifier { key_identifier: Some(own.0), ..AuthorityKeyIdentifier::default() };
            extensions.push(extension(false, &identifier)?);
        }
        if let Some(names) = &order.request.alternative_names {
            let critical = order.request.subject.name.is_empty();
            extensions.push(Extension { extn_id: SubjectAltName::OID, critical, extn_value: names.clone() });
        }
        Ok(extensions)
    }
}

fn extension<T: AssociatedOid + Encode>(critical: bool, value: &T) -> Result<Extension> {
    Ok(Extension { extn_id: T::OID, critical, extn_value: OctetString::new(value.to_der()?)? })
}

/// The subject of a user: `O=GROUP` for each group, and `CN=USER`.
fn subject_name(user: &str, groups: &[String]) -> Result<Name> {
    let part = |oid: ObjectIdentifier, text: &str| -> Result<RelativeDistinguishedName> {
        let value = Any::new(Tag::Utf8String, text.as_bytes())?;
        Ok(RelativeDistinguishedName(SetOfVec::try_from(vec![AttributeTypeAndValue { oid, value }])?))
    };
    let groups = groups.iter().map(|group| part(ORGANIZATION, group));
    let parts = groups.chain([part(COMMON_NAME, user)]).collect::<Result<Vec<_>>>()?;
    Ok(x509_cert::name::RdnSequence(parts))
}

fn moment(seconds: i64) -> Result<CertificateTime> {
    let since = Duration::from_secs(u64::try_from(seconds).context("a time before 1970")?);
    Ok(match UtcTime::from_unix_duration(since) {
        Ok(time) => CertificateTime::UtcTime(time),
        Err(_) => CertificateTime::GeneralTime(GeneralizedTime::from_unix_duration(since)?),
    })
}

/// Usages as the two extensions of X.509 have them.
fn parse_usages(usages: &[String]) -> Result<(FlagSet<KeyUsages>, Vec<ObjectIdentifier>)> {
    let (mut flags, mut extended) = (FlagSet::default(), Vec::new());
    for usage in usages {
        match usage.as_str() {
            "signing" | "digital signature" => flags |= KeyUsages::DigitalSignature,
            "content commitment" => flags |= KeyUsages::NonRepudiation,
            "key encipherment" => flags |= KeyUsages::KeyEncipherment,
            "key agreement" => flags |= KeyUsages::KeyAgreement,
            "data encipherment" => flags |= KeyUsages::DataEncipherment,
            "cert sign" => flags |= KeyUsages::KeyCertSign,
            "crl sign" => flags |= KeyUsages::CRLSign,
            "encipher only" => flags |= KeyUsages::EncipherOnly,
            "decipher only" => flags |= KeyUsages::DecipherOnly,
            other => extended.push(extended_usage(other)?),
        }
    }
    Ok((flags, extended))
}

fn extended_usage(usage: &str) -> Result<ObjectIdentifier> {
    let number = match usage {
        "any" => "2.5.29.37.0",
        "server auth" => "1.3.6.1.5.5.7.3.1",
        "client auth" => "1.3.6.1.5.5.7.3.2",
        "code signing" => "1.3.6.1.5.5.7.3.3",
        "email protection" | "s/mime" => "1.3.6.1.5.5.7.3.4",
        "ipsec end system" => "1.3.6.1.5.5.7.3.5",
        "ipsec tunnel" => "1.3.6.1.5.5.7.3.6",
        "ipsec user" => "1.3.6.1.5.5.7.3.7",
        "timestamping" => "1.3.6.1.5.5.7.3.8",
        "ocsp signing" => "1.3.6.1.5.5.7.3.9",
        "microsoft sgc" => "1.3.6.1.4.1.311.10.3.3",
        "netscape sgc" => "2.16.840.1.113730.4.1",
        _ => bail!("unrecognized usage values: [{usage:?}]"),
    };
    Ok(ObjectIdentifier::new(number)?)
}
