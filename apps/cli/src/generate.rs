//! `generate`: tokens (by the control plane, or here with a key file), keys and certificates.

use std::{
    collections::BTreeMap,
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand, ValueEnum};
use contract::tokens::{DataplaneTokenRequest, UserTokenRequest, ZoneTokenRequest};
use identity::{
    DataplaneToken, KeyPair, SigningKey, UserToken, ZoneToken,
    certificate::{self, Usage},
    token::{self, Advice},
};
use jiff::Timestamp;
use resources::duration::GoDuration;
use serde::Serialize;
use serde_json::json;

use crate::{
    bounded,
    cli::Global,
    client::TokenRequest,
    config::{ClientSettings, write_private},
    control_planes::pair,
    failure::{Failure, Result},
    output::{PlainFormat, PlainOutput},
    terminal,
    types::DEFAULT_MESH,
};

/// Lifetime of tokens of proxies and zones by default: ten years, as in Kuma.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(87_600 * 3600);

#[derive(Debug, Subcommand)]
pub enum Generate {
    DataplaneToken(ForDataplane),
    ZoneToken(ForZone),
    UserToken(ForUser),
    /// Generate a key that signs tokens
    SigningKey(PlainOutput),
    /// Show the public half of a signing key
    PublicKey {
        /// File with the signing key
        #[arg(long, value_name = "FILE")]
        signing_key_path: PathBuf,
        #[command(flatten)]
        output: PlainOutput,
    },
    TlsCertificate(TlsCertificate),
}

/// With a key file the token is made here; without, the control plane makes it.
#[derive(Debug, Args)]
pub struct Issuing {
    /// Sign the token locally with this key instead of asking the control plane
    #[arg(long, value_name = "FILE", requires = "kid")]
    signing_key_path: Option<PathBuf>,
    /// Serial number of the key
    #[arg(long, requires = "signing_key_path")]
    kid: Option<String>,
    #[command(flatten)]
    output: PlainOutput,
}

/// Generate a token that authenticates a data plane proxy
#[derive(Debug, Args)]
pub struct ForDataplane {
    /// Name the proxy must have
    #[arg(long, default_value = "")]
    name: String,
    /// Mesh the proxy must be in
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Tag the proxy must have; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    tag: Vec<(String, String)>,
    /// Label the proxy must have, which a MeshIdentity may then name it by; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    label: Vec<(String, String)>,
    /// Workload the proxy must belong to
    #[arg(long, default_value = "")]
    workload: String,
    /// Type the proxy must have
    #[arg(long, value_parser = ["", "dataplane", "ingress", "egress"], default_value = "", hide_possible_values = true)]
    proxy_type: String,
    /// How long the token is valid, such as 720h [default: 87600h]
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    valid_for: Option<GoDuration>,
    #[command(flatten)]
    issuing: Issuing,
}

/// Generate a token that authenticates a zone
#[derive(Debug, Args)]
pub struct ForZone {
    /// Name of the zone
    #[arg(long)]
    zone: String,
    /// What the token is for; repeatable
    #[arg(long, value_delimiter = ',', default_values = ["ingress", "egress"], value_parser = ["ingress", "egress", "cp", "ratelimit"])]
    scope: Vec<String>,
    /// How long the token is valid, such as 720h [default: 87600h]
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    valid_for: Option<GoDuration>,
    #[command(flatten)]
    issuing: Issuing,
}

/// Generate a token that authenticates a user
#[derive(Debug, Args)]
pub struct ForUser {
    /// Name of the user
    #[arg(long)]
    name: String,
    /// Group of the user; repeatable
    #[arg(long, value_delimiter = ',')]
    group: Vec<String>,
    /// How long the token is valid, such as 24h
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    valid_for: GoDuration,
    #[command(flatten)]
    issuing: Issuing,
}

/// Generate a key and a self-signed certificate
#[derive(Debug, Args)]
pub struct TlsCertificate {
    /// Which side of a connection presents the certificate
    #[arg(long = "type", value_name = "TYPE")]
    side: Side,
    /// Host name or address of the server, or name of the client; repeatable
    #[arg(long, value_delimiter = ',', required = true)]
    hostname: Vec<String>,
    /// Where to write the key; - for stdout
    #[arg(long, value_name = "FILE", default_value = "key.pem")]
    key_file: String,
    /// Where to write the certificate; - for stdout
    #[arg(long, value_name = "FILE", default_value = "cert.pem")]
    cert_file: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Side {
    Server,
    Client,
}

impl Generate {
    pub fn run(&self, global: &Global) -> Result<()> {
        match self {
            Generate::DataplaneToken(of) => of.run(global),
            Generate::ZoneToken(of) => of.run(global),
            Generate::UserToken(of) => of.run(global),
            Generate::SigningKey(output) => {
                let pem = KeyPair::generate().map_err(Failure::failed)?.private_pem();
                output.show(&json!({ "key": pem }), || pem.clone())
            }
            Generate::PublicKey { signing_key_path, output } => {
                let pem = read_key(signing_key_path)?.public().pem();
                output.show(&json!({ "key": pem }), || pem.clone())
            }
            Generate::TlsCertificate(of) => of.run(),
        }
    }
}

impl ForDataplane {
    fn run(&self, global: &Global) -> Result<()> {
        let tags = by_key(&self.tag);
        let labels = by_key(&self.label);
        let request = DataplaneTokenRequest {
            name: self.name.clone(),
            mesh: self.mesh.clone(),
            tags: tags.clone(),
            r#type: self.proxy_type.clone(),
            workload: self.workload.clone(),
            labels: labels.clone(),
            valid_for: self.valid_for.map(|lifetime| lifetime.to_string()).unwrap_or_default(),
        };
        let claims = DataplaneToken {
            name: self.name.clone(),
            mesh: self.mesh.clone(),
            tags,
            proxy_type: self.proxy_type.clone(),
            workload: self.workload.clone(),
            labels,
        };
        let wanted = Wanted { request, claims, valid_for: self.valid_for };
        let token = self.issuing.issue(global, &wanted)?;
        if token::claimed_labels(&token) != wanted.claims.labels {
            return Err(Failure::failed(
                "the control plane issued a token that does not bind the labels: it does not support --label; sign the \
                 token here instead (--signing-key-path)",
            ));
        }
        self.issuing.show(&token)
    }
}

/// The values of each key.
fn by_key(pairs: &[(String, String)]) -> BTreeMap<String, Vec<String>> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in pairs {
        values.entry(key.clone()).or_default().push(value.clone());
    }
    values
}

impl ForZone {
    fn run(&self, global: &Global) -> Result<()> {
        let request = ZoneTokenRequest {
            zone: self.zone.clone(),
            scope: self.scope.clone(),
            valid_for: self.valid_for.map(|lifetime| lifetime.to_string()).unwrap_or_default(),
        };
        let claims = ZoneToken { zone: self.zone.clone(), scope: self.scope.clone() };
        self.issuing.run(global, &Wanted { request, claims, valid_for: self.valid_for })
    }
}

impl ForUser {
    fn run(&self, global: &Global) -> Result<()> {
        let request = UserTokenRequest {
            name: self.name.clone(),
            groups: self.group.clone(),
            valid_for: self.valid_for.to_string(),
        };
        let claims = UserToken { name: self.name.clone(), groups: self.group.clone() };
        self.issuing.run(global, &Wanted { request, claims, valid_for: Some(self.valid_for) })
    }
}

/// A token to be made: claims to sign here, or the request that asks a control plane for the same.
struct Wanted<R, C> {
    request: R,
    claims: C,
    valid_for: Option<GoDuration>,
}

impl Issuing {
    fn run<R: TokenRequest, C: Serialize + Advice>(
        &self,
        global: &Global,
        wanted: &Wanted<R, C>,
    ) -> Result<()> {
        self.show(&self.issue(global, wanted)?)
    }

    fn issue<R: TokenRequest, C: Serialize + Advice>(
        &self,
        global: &Global,
        wanted: &Wanted<R, C>,
    ) -> Result<String> {
        let Wanted { request, claims, valid_for } = wanted;
        match (&self.signing_key_path, &self.kid) {
            (Some(path), Some(kid)) => {
                let lifetime = valid_for.and_then(GoDuration::to_std).unwrap_or(DEFAULT_LIFETIME);
                let key = SigningKey { kid: kid.clone(), pair: read_key(path)? };
                warn(&claims.warnings(lifetime));
                token::issue(claims, &key, Timestamp::now(), lifetime).map_err(Failure::failed)
            }
            _ => {
                let client = ClientSettings::load(global)?.client()?;
                let answer = client.token(request)?.accepted("the control plane returned no token")?;
                warn(&answer.warnings);
                word(&answer.body)
            }
        }
    }

    fn show(&self, token: &str) -> Result<()> {
        if self.output.format == PlainFormat::Text {
            return Ok(terminal::token(token)?);
        }
        self.output.show(&json!({ "token": token }), String::new)
    }
}

/// The token that a control plane answers with: one word, which files and headers are to hold.
fn word(body: &str) -> Result<String> {
    let token = body.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::failed(
            "the control plane returned no token: its answer is not one word; is there a control plane at this address?",
        ));
    }
    Ok(token.to_owned())
}

/// Warnings about a token, beside the token itself.
fn warn(warnings: &[String]) {
    warnings.iter().for_each(|warning| terminal::talk(&format!("warning: {warning}")));
}

impl TlsCertificate {
    fn run(&self) -> Result<()> {
        let usage = match self.side {
            Side::Server => Usage::Server,
            Side::Client => Usage::Client,
        };
        let (addresses, names): (Vec<&String>, Vec<&String>) =
            self.hostname.iter().partition(|name| name.parse::<IpAddr>().is_ok());
        let addresses: Vec<IpAddr> = addresses.iter().filter_map(|address| address.parse().ok()).collect();
        let names: Vec<String> = names.into_iter().cloned().collect();
        let made = certificate::self_signed(usage, &names, &addresses, Timestamp::now())
            .map_err(Failure::invalid)?;
        save("Private key", &self.key_file, &made.key, write_private)?;
        save("Certificate", &self.cert_file, &made.certificate, |path, pem| fs::write(path, pem))
    }
}

fn save(what: &str, file: &str, pem: &str, write: fn(&Path, &str) -> io::Result<()>) -> Result<()> {
    if file == "-" {
        return Ok(terminal::data(pem)?);
    }
    write(Path::new(file), pem).map_err(|error| Failure::failed(format!("writing {file}: {error}")))?;
    terminal::talk(&format!("{what} saved in {file}"));
    Ok(())
}

fn read_key(path: &Path) -> Result<KeyPair> {
    let wrong = |error: String| Failure::invalid(format!("signing key {}: {error}", path.display()));
    let pem = bounded::file(path, bounded::MOST_OF_SETTINGS).map_err(|error| wrong(error.to_string()))?;
    KeyPair::from_pem(&pem).map_err(|error| wrong(error.to_string()))
}

fn lifetime(text: &str) -> std::result::Result<GoDuration, String> {
    let duration: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    if duration.nanoseconds() > 0 { Ok(duration) } else { Err("must be positive".to_owned()) }
}
