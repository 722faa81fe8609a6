//! Versions and ciphers of TLS, as several kinds name them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    open_enum::{OpenEnum, open_enum},
};
use crate::{Path, Violations};

/// The TLS versions to offer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Version {
    /// The oldest TLS version that is accepted; `TLSAuto`, the default, leaves it to Envoy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<TlsVersion>,
    /// The newest TLS version that is used; `TLSAuto`, the default, leaves it to Envoy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<TlsVersion>,
}

open_enum! {
    /// A TLS version; `TLSAuto` leaves the choice to Envoy.
    TlsVersion { Auto = "TLSAuto", Tls10 = "TLS10", Tls11 = "TLS11", Tls12 = "TLS12", Tls13 = "TLS13" }
}

open_enum! {
    /// A cipher suite of TLS 1.2; those of TLS 1.3 cannot be chosen.
    TlsCipher {
        EcdsaAes128 = "ECDHE-ECDSA-AES128-GCM-SHA256",
        EcdsaAes256 = "ECDHE-ECDSA-AES256-GCM-SHA384",
        EcdsaChacha20 = "ECDHE-ECDSA-CHACHA20-POLY1305",
        RsaAes128 = "ECDHE-RSA-AES128-GCM-SHA256",
        RsaAes256 = "ECDHE-RSA-AES256-GCM-SHA384",
        RsaChacha20 = "ECDHE-RSA-CHACHA20-POLY1305",
    }
}

impl Version {
    pub(crate) fn apply_defaults(&mut self) {
        self.min.get_or_insert(TlsVersion::Auto);
        self.max.get_or_insert(TlsVersion::Auto);
    }

    pub(crate) fn validate(&self, path: &Path, found: &mut Violations) {
        let mut both_known = true;
        for (field, version) in [("min", &self.min), ("max", &self.max)] {
            let Some(version) = version else { continue };
            checks::known(version, path, field, found);
            both_known &= version.is_known();
        }
        if let (Some(min), Some(max), true) = (&self.min, &self.max, both_known) {
            let open = *min == TlsVersion::Auto || *max == TlsVersion::Auto;
            found.require(open || min <= max, path.field("min"), "min version must be lower than max");
        }
    }
}
