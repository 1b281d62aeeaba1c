package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"pgmirror/test/harness"
)

// startPooler listens as a pooler in front of a server does: it takes "replication" out of startup packets, and refuses those
// with a parameter called refuse.
func startPooler(t *testing.T, server, refuse string) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go pool(client, server, refuse)
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

func pool(client net.Conn, server, refuse string) error {
	defer client.Close()
	length := make([]byte, 4)
	if _, err := io.ReadFull(client, length); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(length)-4)
	if _, err := io.ReadFull(client, body); err != nil {
		return err
	}
	var startup pgproto3.StartupMessage
	if err := startup.Decode(body); err != nil {
		return err
	}
	if _, asked := startup.Parameters[refuse]; asked {
		answer, err := (&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + refuse}).Encode(nil)
		if err != nil {
			return err
		}
		_, err = client.Write(answer)
		return err
	}
	delete(startup.Parameters, "replication")
	packet, err := startup.Encode(nil)
	if err != nil {
		return err
	}
	backend, err := net.Dial("tcp", server)
	if err != nil {
		return err
	}
	defer backend.Close()
	if _, err := backend.Write(packet); err != nil {
		return err
	}
	go func() {
		io.Copy(backend, client)
		backend.Close()
	}()
	_, err = io.Copy(client, backend)
	return errors.Join(err)
}

// S-W15: through a pooler that lets questions pass, the server's own address is found, and the printed source goes there. One that
// refuses our settings is known too.
func checkPooler(t *testing.T, p *harness.Postgres) {
	for name, refuse := range map[string]string{"refuses": "replication", "takes out": "none"} {
		t.Run(name, func(t *testing.T) {
			c := newChecked(t, p, "c_pooler_"+name[:5], keyed, publish)
			direct := net.JoinHostPort("127.0.0.1", portOf(c.config[0]))
			c.config[0] = strings.Replace(c.config[0], portOf(c.config[0]), startPooler(t, direct, refuse), 1)
			c.repairAll("pooler", exitFinding)
		})
	}
	t.Run("settings", func(t *testing.T) {
		c := newChecked(t, p, "c_pooler_settings", keyed, publish)
		c.config[0] = strings.Replace(c.config[0], portOf(c.config[0]), startPooler(t, "", "statement_timeout"), 1)
		out, code := c.run("check")
		if lines := strings.Join(findings(out)["pooler"], "\n"); code != exitFinding || !strings.Contains(lines, "  fix: connect to the PostgreSQL server itself") {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
}

// portOf is the port in postgres://user@127.0.0.1:port/database.
func portOf(source string) string {
	_, rest, _ := strings.Cut(source, "127.0.0.1:")
	port, _, _ := strings.Cut(rest, "/")
	return port
}
