package interop

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Engine commits to a table with Iceberg's Java library, as test/interop/engines/Engine.java says, and returns what that prints.
func Engine(args ...string) (string, error) {
	classPath, err := setup("interop-java.sh")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("java", append([]string{"-XX:TieredStopAtLevel=1", "-cp", classPath, filepath.Join(packageDir(), "engines", "Engine.java")}, args...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, log.String())
	}
	return strings.TrimSpace(string(out)), nil
}
