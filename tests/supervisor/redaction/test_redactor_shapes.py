"""The forms in which programs and people write secrets: in none of them does one stay readable."""

import json
from typing import Any

from proctor.supervisor.redaction import Redactor

S, W, N, Q, H = "Tr0ub4dor&3x", "correcthorse", "739214", "p9QzL2mVt7Xk", "hunter2"
"""Passwords: a strong one, letters only, digits only, a generated one, a short one."""
SHAPES: dict[str, list[Any]] = {
    W: [
        # SQL and database clients
        *("mongosh -p %s", 'db.auth("admin", "%s")', "db.createUser({user: 'a', pwd: '%s', roles: []})"),
        *("db.changeUserPassword('a', '%s')", "CREATE USER 'a'@'%%' IDENTIFIED BY '%s'"),
        *('ALTER USER a IDENTIFIED BY "%s"', "CREATE USER a WITH PASSWORD '%s'"),
        *("CREATE LOGIN a WITH PASSWORD = N'%s'", "ALTER ROLE a ENCRYPTED PASSWORD '%s'"),
        *("GRANT ALL ON *.* TO 'a'@'%%' IDENTIFIED BY '%s'", "SET PASSWORD FOR 'a'@'h' = PASSWORD('%s')"),
        *("IDENTIFIED WITH mysql_native_password BY '%s'", "IDENTIFIED WITH sha256_password BY '%s'"),
        *("CREATE USER a IDENTIFIED BY VALUES '%s'", "CREATE SECRET s (TYPE S3, KEY_ID 'k', SECRET '%s')"),
        *("OPTIONS (user 'bob', password '%s')", "MASTER_USER='r', MASTER_PASSWORD='%s'"),
        *("CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD = '%s'", "PRAGMA key = '%s'", "ATTACH 'x' AS y KEY '%s'"),
        *("ATTACH DATABASE 'x.db' AS e KEY '%s'", "CREATE USER MAPPING OPTIONS (password '%s')"),
        *("ENCRYPTION BY PASSWORD = '%s'", "pgp_sym_encrypt(data, '%s')", "pgp_sym_decrypt(x::bytea, '%s')"),
        *("mysql -uroot -p'%s' db", "mysql --password='%s'", "mysql -u root --password=%s"),
        *("clickhouse-client --user x --password %s", "psql 'host=h user=u password=%s'", "PGPASSWORD=%s psql"),
        *("influx -username a -password %s", "influx setup --username a --password %s --force", "cqlsh -u a -p %s"),
        *("db2 connect to x user y using %s", "sqlcmd -S h -U sa -P '%s'", "hdbsql -u SYSTEM -p %s"),
        *("beeline -u jdbc:hive2://h -n a -p %s", "snowsql -a x -u y --password %s", "cypher-shell -u neo4j -p %s"),
        *("neo4j-admin set-initial-password %s", "neo4j-admin dbms set-initial-password %s"),
        "dbaccess - - <<< \"CONNECT TO 'x' USER 'u' USING '%s'\"",
        # connection strings
        *("Server=h;Database=d;User Id=u;Password=%s;", "Driver={ODBC Driver 17};Server=h;UID=u;PWD=%s;"),
        *("Data Source=h;Initial Catalog=d;User ID=u;Password=%s;Encrypt=yes", "Provider=SQLOLEDB;Pwd=%s"),
        *("jdbc:sqlserver://h:1433;user=u;password=%s;", "jdbc:mysql://h/d?user=u&password=%s", "oracle://u:%s@h/x"),
        *("mongodb+srv://u:%s@h/x", "amqp://u:%s@h//", "redis://:%s@h:6379/0", "ldap://h?bindpw=%s"),
        *("host=h port=5432 dbname=d user=u password=%s sslmode=require", "postgres://u:%s@h/d"),
        "Extended Properties;Jet OLEDB:Database Password=%s;",
        # files
        *("machine h login u password %s", "machine h\n  login u\n  password %s\n"),
        *("machine h login u account a password %s", "default login anonymous password %s"),
        *("localhost:5432:db:user:%s", "*:*:*:postgres:%s\n", "[client]\nuser=root\npassword=%s\n"),
        *('  password: "%s"\n', "apiKey: '%s'\n", 'client_secret = "%s"', "DB_PASS=%s\n", 'export PASSWORD="%s"'),
        *("set PASSWORD=%s", "$env:PASSWORD = '%s'", "ENV DB_PASSWORD %s", "ENV DB_PASSWORD=%s"),
        *("define('DB_PASSWORD', '%s');", "<password>%s</password>", '<add key="Password" value="%s"/>'),
        *('<property name="password" value="%s"/>', '<entry key="password">%s</entry>'),
        *("<server><username>u</username><password>%s</password></server>", "spring.datasource.password=%s"),
        *("password = '%s'  # x", "passwd=%s", '_password = "%s"', 'network={\n ssid="x"\n psk="%s"\n}'),
        "wifi.psk=%s",
        # headers and cookies
        *("Cookie: session=%s; a=b", "Set-Cookie: sid=%s; Path=/; HttpOnly"),
        *({"headers": {"Authorization": "Bearer %s"}}, {"headers": [["Authorization", "%s"]]}),
        *({"headers": [{"name": "Cookie", "value": "a=%s"}]}, {"Set-Cookie": "sid=%s"}),
        # argv and env
        *(["prog", "--token", "%s"], ["prog", "--password=%s"], ["mysql", "-p%s"]),
        *(["mysql", "-u", "root", "--password", "%s"], ["env", "TOKEN=%s", "prog"], {"env": {"DB_PASS": "%s"}}),
        *({"env": ["API_KEY=%s"]}, ["docker", "run", "-e", "PASSWORD=%s", "x"]),
        *(["docker", "login", "-u", "a", "-p", "%s"], ["mongosh", "-p", "%s"], ["sshpass", "-p", "%s", "ssh", "h"]),
        *(["curl", "-u", "a:%s", "http://h"], ["curl", "-H", "Authorization: Bearer %s"]),
        *(["wget", "--http-password", "%s"], ["aws", "configure", "set", "aws_secret_access_key", "%s"]),
        *("wget --http-password=%s http://h", "wget --user a --password %s http://h"),
        "kubectl create secret generic x --from-literal=password=%s",
        "kubectl config set-credentials u --token=%s",
        *("kubectl create secret docker-registry x --docker-password=%s", "helm install x --set db.password=%s"),
        *("helm install x --set auth.rootPassword=%s,a=b", "terraform apply -var 'db_password=%s'"),
        *("ansible-playbook x -e ansible_password=%s", "ansible-playbook x -e 'ansible_become_pass=%s'"),
        *("gcloud sql users set-password root --password=%s", "az ad sp create --password %s"),
        *("az login --service-principal -u a -p %s --tenant t", "heroku config:set SECRET=%s"),
        *("fly secrets set A_KEY=%s", "vercel --token %s", "netlify deploy --auth %s"),
        *("gh auth login --with-token <<< %s", "echo %s | docker login -u a --password-stdin"),
        *("echo '%s' | sudo -S ls", "printf '%s' | sudo -S ls", "sudo -S ls <<< '%s'", "echo 'root:%s' | chpasswd"),
        *("chpasswd <<< root:%s", "passwd --stdin root <<< %s", "usermod -p '%s' u"),
        *("openssl enc -aes-256-cbc -k %s -in a", "openssl enc -pass pass:%s", "gpg --batch --passphrase %s -c f"),
        *("gpg --passphrase='%s' -d f", "zip -P %s a b", "unzip -P%s a", "7z x -p%s a"),
        *("ssh-keygen -t ed25519 -N '%s' -f k", "borg --passphrase %s", "BORG_PASSPHRASE='%s' borg"),
        *("RESTIC_PASSWORD=%s restic", "mount -t cifs //h/s /m -o username=u,password=%s"),
        *("mount -o user=u,pass=%s //h/s", "smbclient //h/s -U 'u%%%s'", "ldapsearch -D x -w %s", "kinit u <<< %s"),
        *("ftp://u:%s@h/f", "lftp -u a,%s h", "ncftpput -u a -p %s h", "curl ftp://h -u a:%s", "http -a a:%s h"),
        *("nmcli dev wifi connect x password %s", "iwctl --passphrase %s station", "wpa_passphrase x %s"),
        *("ipmitool -U a -P %s", "racadm -u root -p %s", "xfreerdp /u:a /p:%s", "rdesktop -p %s h"),
        *("htpasswd -b f u %s", "htpasswd -nbB u %s", "mosquitto_pub -u a -P %s"),
        "kafka --command-config sasl.jaas.config='... password=\"%s\";'",
        *('sasl.jaas.config=x required username="u" password="%s";', "etcdctl --user root:%s get"),
        *("consul kv get -token=%s x", "vault kv put secret/x password=%s"),
        *("vault write auth/userpass/login/u password=%s", "nomad -token %s", "op item create password=%s"),
        *("op signin --account x --secret-key %s", "security add-generic-password -a a -s s -w %s"),
        *("security add-internet-password -w %s", "security unlock-keychain -p %s", "cmdkey /add:h /user:u /pass:%s"),
        *("schtasks /create /ru u /rp %s", "psexec \\\\h -u u -p %s cmd", "wmic /user:u /password:%s"),
        *("dsadd user x -pwd %s", "New-LocalUser -Password (ConvertTo-SecureString '%s' -AsPlainText)"),
        # Python and JavaScript code
        *("requests.get(u, auth=('a', '%s'))", "HTTPBasicAuth('a', '%s')", 'password = "%s"'),
        *("os.environ['TOKEN'] = '%s'", "const apiKey = '%s';", "connect(user='u', password='%s')"),
        *('conn = psycopg.connect(password="%s")', "{'password': '%s'}", '{"password": "%s"}'),
        *('{"user":"a","pass":"%s"}', "process.env.SECRET = '%s'", "new Client({ password: '%s' })"),
        *("smtp.login('a@b', '%s')", 'server.login("a", "%s")', "ftp.login('a', '%s')"),
        *("client.connect('h', username='u', password='%s')", "hmac.new(b'%s', m, 'sha256')"),
        *("jwt.encode(p, '%s', algorithm='HS256')", "app.secret_key = '%s'", "app.config['SECRET_KEY'] = '%s'"),
    ],
    Q: [
        # programs that test, sign and publish; languages with other assignments
        *("hydra -l u h ssh -p %s", "ncrack -p %s", "crackmapexec smb h -u u -p %s", "nxc smb h -u u -p %s"),
        *("evil-winrm -i h -u u -p %s", "xcrun altool -u u -p %s", "certutil -p %s", "mutool clean -p %s"),
        *("osslsigncode sign -pass %s", "signtool sign /f x /p %s", "dotnet nuget push x -k %s", "cargo login %s"),
        *("nuget push x -ApiKey %s", "pulumi config set --secret x %s", "doppler secrets set X=%s", "ADMIN_PW=%s"),
        *("ansible_ssh_pass: %s", "WIFI_PSK=%s", "export SECRET_KEY_BASE=%s", "ffmpeg -decryption_key %s"),
        *("impacket-psexec d/u:%s@h", {"ssh_pass": "%s"}, {"secret_key_base": "%s"}),
        # SQL and database clients
        *("sqlplus scott/%s@orcl", "sqlplus -s scott/%s@//db:1521/x @q.sql", "rman target sys/%s@prod"),
        *("expdp system/%s@db full=y", "impdp scott/%s schemas=x", "sqlldr userid=scott/%s control=a.ctl"),
        *(["sqlplus", "scott/%s@orcl"], "CONNECT scott/%s@orcl", "conn scott/%s", "AUTH %s", "AUTH default %s"),
        *("redis-cli AUTH %s", "redis-cli -h h AUTH user %s", "CONFIG SET requirepass %s"),
        *("redis-cli CONFIG SET requirepass %s", "ACL SETUSER bob on >%s ~* +@all"),
        *(["redis-cli", "CONFIG", "SET", "requirepass", "%s"], ["redis-cli", "AUTH", "%s"]),
        *("HELLO 3 AUTH default %s", "MIGRATE h 6379 k 0 5000 AUTH %s"),
        *("mongosh -u a -p %s --authenticationDatabase admin", "mongosh -u a -p%s", "mongosh --password %s"),
        *("db.auth('admin', '%s')", "ALTER USER a IDENTIFIED BY %s"),
        *("CREATE DATABASE LINK l CONNECT TO u IDENTIFIED BY %s USING 'x'", "isql -U sa -P %s -S x"),
        *("tsql -S h -U sa -P %s", "bteq .logon h/user,%s", ".LOGON h/user,%s", "vsql -U a -w %s"),
        # connection strings
        *("jdbc:oracle:thin:u/%s@//h:1521/x", "jdbc:oracle:thin:u/%s@h:1521:x"),
        # files
        *("secret: %s\n", "api_key: %s\n", "token: %s", "export TOKEN=%s", "ARG TOKEN=%s"),
        *("//registry/:_authToken=%s", "pre-shared-key %s", "snmp-server community %s RO"),
        # headers and cookies
        *("Authorization: Bearer %s", "authorization: token %s", "Authorization: %s", "api-key: %s"),
        *("Set-Cookie: JSESSIONID=%s", "Authorization: ApiKey %s", "Authorization: GenieKey %s"),
        *({"cookies": {"session": "%s"}}, {"cookies": [{"name": "sid", "value": "%s", "domain": "x"}]}),
        # argv and env
        *("doctl auth init -t %s", "fly secrets set DB=%s", "useradd -p %s u"),
        *("rclone config create x s3 secret_access_key %s", "rclone config create x sftp pass %s"),
        *("smbclient //h/s %s -U u", "net use z: \\\\h\\s %s /user:u", "http h 'Authorization:Bearer %s'"),
        *("http h X-API-Key:%s", "winexe -U u%%%s //h", "rabbitmqctl add_user a %s", "vault login %s"),
        *("bw unlock %s", "bw login a@b %s", "keyctl add user k %s @u", "runas /user:u <<< %s"),
        "net user bob %s /add",
        # prose
        *("The password is %s.", "my password: %s", "Use password %s to log in", "token is %s", "The API key is %s"),
        *("secret key: %s", "passphrase is %s"),
    ],
    N: [
        # programs that test, sign and publish; languages with other assignments
        *("otp=%s", "your code: %s", "your login code is %s"),
        # prose
        *("Your verification code is %s", "Your one-time code: %s", "OTP: %s"),
        *("%s is your Facebook confirmation code", "G-%s is your Google verification code"),
        *("Enter code %s to continue", "passcode: %s", "security code %s", "2FA code %s"),
        "login code: %s. Do not give it to anyone",
    ],
    S: [
        # programs that test, sign and publish; languages with other assignments
        *('password := "%s"', 'password <- "%s"'),
        # files
        "h:5432:*:u:%s",
    ],
}
SHAPES[H] = [
    # values from which a program, or a database, gets its password
    *("echo %s | sudo -S ls", "sudo -S ls <<< %s", "echo 'user:%s' | chpasswd", "kinit a <<< %s"),
    *("echo -n %s | cryptsetup luksOpen d n -", "CREATE USER a IDENTIFIED BY '%s'", "vncpasswd -f <<< %s"),
    *("psql -c \"ALTER USER a PASSWORD '%s'\"", "pdftk a output b user_pw %s", "gh auth login --with-token <<< %s"),
    *("echo %s | gh auth login --with-token", "APP_KEY=%s", "net use X: \\\\host\\s %s /user:U", "winrs -p:%s"),
    *("GET / HTTP/1.1\nX-Api-Key: %s\n", "cd a && vault login %s", "ipmitool -U a -P %s x", "setx TOKEN %s"),
    *("ncftpput -u a -p %s h", "poetry publish -u a -p %s", "veracrypt -p %s d", "psexec \\\\h -u a -p %s cmd"),
    *("cmdkey /add:h /pass:%s", "netlify x --auth %s", "rclone obscure %s", "mc alias set x http://h a %s"),
    *("poetry config pypi-token.pypi %s", 'GRANT x TO a IDENTIFIED BY "%s"', "SET PASSWORD FOR a = '%s'"),
    *("SET PASSWORD = PASSWORD('%s')", "ConvertTo-SecureString '%s' -AsPlainText", "set -gx API_TOKEN %s"),
    *("echo -e '%s\\n%s' | passwd a", "requirepass %s", '{"otp": "%s"}'),
]
KEYS = [
    *("AKIAIOSFODNN7EXAMPLQ", "ghp" + "_" + "a1" * 18, "glpat-" + "a1B2" * 5),
    *("xoxb-123456789012-123456789012-" + "aB3d" * 6, "sk_live" + "_" + "a1" * 12, "AIza" + "a1B2c" * 7),
    *("npm_" + "a1" * 18, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk", "sk-ant-api03-" + "a1" * 20),
    *("pypi-AgEIcHlwaS5vcmc" + "a1" * 40, "SG." + "a1" * 11 + "." + "b2" * 21 + "c", "dop_v1_" + "a1" * 32),
    *("hvs." + "a1B2" * 8, "rk_test" + "_" + "a1" * 12, "key-" + "a1" * 16, "lin_api_" + "a1" * 20),
    *("PMAK-" + "a1" * 12 + "-" + "b2" * 17, "NRAK-" + "A1" * 13 + "B", "sntrys_" + "a1" * 30, "figd_" + "a1B2" * 10),
    *("ntn_" + "a1B2" * 11, "secret_" + "a1B2" * 10 + "abc", "pul-" + "a1" * 20, "tfp_" + "a1" * 20),
    *("r8_" + "a1B2" * 9 + "a", "atlasv1." + "a1" * 30, "abc1def2ghi3jk.atlasv1." + "a1" * 32, "EAAC" + "a1B2" * 30),
    *("ya29.a0" + "Ab1" * 20, "doo_v1_" + "a1" * 32, "CFPAT-" + "a1B2" * 10 + "abc", "ATATT3xFfGF0" + "a1B2" * 40),
    *("fo1_" + "a1B2" * 10 + "abc", "pat" + "a1B2c3D4e5F6g7." + "a1" * 32, "FlyV1 fm2_" + "a1B2" * 20),
    *("sbp_" + "a1" * 20, "dckr_pat_" + "a1B2" * 6 + "abc", "tskey-auth-" + "a1B2c3" + "CNTRL-" + "a1B2" * 8),
    *("gsk_" + "a1B2" * 13, "pplx-" + "a1B2" * 12, "hf_" + "aBcDe" * 7, "AGE-SECRET-KEY-1" + "A1" * 29),
    *("LTAI5t" + "A1b2" * 5, "glsa_" + "a1B2" * 8 + "_" + "a1b2c3d4", "rubygems_" + "a1" * 24),
    *("shippo_live_" + "a1" * 20, "EZAK" + "a1B2" * 13 + "ab", "sq0atp-" + "a1B2" * 5 + "ab"),
    "xapp-1-A1-1-" + "ab12" * 16,
]
OTHERS: list[tuple[Any, str]] = [
    ("https://discord.com/api/webhooks/123456789012345678/%s", "Ab" * 34),
    ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=%s==;EndpointSuffix=x", "k" * 43 + "Q1" * 21 + "a"),
    ("Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=%s=", "aB3d" * 10 + "xyz"),
    ("HostName=h;DeviceId=d;SharedAccessKey=%s=", "aB3d" * 10 + "xyz"),
    *(("https://h/c?sv=2020&sig=%s%%3D", "aB3d" * 10 + "xyz"), ("User=u;Password='%s';Server=h", "two words here")),
    ("[default]\naws_secret_access_key = %s\n", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    *(("SECRET_KEY='%s'", "two words here"), ("_auth=%s", "dXNlcjpwYXNzd29yZA==")),
    *(("//r/:_password=%s", "cGFzc3dvcmQ="), ('{"auths":{"r":{"auth":"%s"}}}', "dXNlcjpwYXNzd29yZA==")),
    *(("enable secret 5 %s", "$1$mERr$hx5rVt7rPNoS4wqbXKX7m0"), ("username a password 7 %s", "0822455D0A16")),
    ("root:%s:18000:0:99999:7:::", "$6$rounds=5000$saltsalt$hashhashhashhash"),
    *(("a:%s", "$2y$10$abcdefghijklmnopqrstuv"), ("user:%s", "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=")),
    *(("Authorization: Basic %s", "dXNlcjpwYXNzd29yZA=="), ("Proxy-Authorization: Basic %s", "dXNlcjpw")),
    *(("X-Amz-Security-Token: %s", Q * 3), ("X-Amz-Signature=%s", "ab12" * 16)),
    ("Authorization: AWS4-HMAC-SHA256 Credential=x, SignedHeaders=h, Signature=%s", "ab12" * 16),
    ('Authorization: Digest username="u", response="%s"', "ab12" * 8),
    *(("Ocp-Apim-Subscription-Key: %s", "ab12" * 8), ("Fernet(b'%s')", "aB3d" * 10 + "xyz=")),
    *(("cipher = AES.new(b'%s', AES.MODE_CBC)", "0123456789abcdef"), ("PIN: %s", "4821"), ("the pin is %s", "4821")),
    *(("Recovery code: %s", "8f2k-9d3m-qp4x"), ("backup codes: %s", "12345-67890")),
    # values that are redacted whole by their name: in JSON, in a list of variables, in the words of a connection
    *(({"bearer": "%s"}, "letters"), ('{"bearer": "%s"}', "letters")),
    ({"Env": ["PATH=/bin", "DB_PASSWORD=%s"]}, "four letters long"),
    ("psql \"host=h password='%s' user=u\"", "four letters long"),
    *(("%s", key) for key in KEYS),
    *((shape, secret) for secret, shapes in SHAPES.items() for shape in shapes),
]

HONEST = (
    *("AUTH is required", "the AUTH header, see RFC 7617", "connect to the server and/or the proxy"),
    *("Enter code in the editor", "exit code 1234 is your problem to solve", "error code: 4821"),
    *("the confirmation code of booking 4WQ150 is ABC123", "status code is 404", "def key(self, value): return 'x'"),
    *("SELECT key FROM t WHERE key = 'abc'", "app.py:1234:error", "password: string;", "password = get_password()"),
    *("password=password,", "exp 1/2, imp a/b", "mount -o ro,noexec /dev/sda1 /mnt"),
    *("printf 'hello world' | grep hello", "git rev-parse HEAD:docs", "the token is invalid", "the secret is out"),
    *("https://h/?page_token=abc&sig=short", "ENV PATH /usr/bin", "login('name', password)"),
    *("kubectl get secret x -o yaml", "helm install x --set image.tag=1.2.3"),
    "EAASY steps, LTAI, key-value, pull-request, pat on the back",
)


def filled(shape: Any, secret: str) -> Any:
    written = json.dumps(shape).replace("%s", json.dumps(secret)[1:-1]).replace("%%", "%")
    return json.loads(written)


def test_a_secret_is_found_in_each_form() -> None:
    """The text around it stays."""
    for shape, secret in OTHERS:
        redacted = json.dumps(Redactor().redact(filled(shape, secret)))

        assert secret not in redacted, (shape, secret)
        assert secret[4:-4] not in redacted or len(secret) < 13, (shape, secret)
        assert "[redacted:" in redacted, (shape, secret)


def test_text_that_only_resembles_one_of_these_forms_is_kept() -> None:
    """One word or position of a form alone is not enough."""
    for text in HONEST:
        assert Redactor().redact(text) == text, text
