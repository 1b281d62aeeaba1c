package harness

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// serverProc makes the server end with us even when a test run is killed.
func serverProc(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}

// ChildProc makes any other process end with us even when a test run is killed.
func ChildProc() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// removeSegment removes a segment of shared memory, as soon as nobody has it attached.
func removeSegment(id int) { unix.SysvShmCtl(id, unix.IPC_RMID, nil) }
