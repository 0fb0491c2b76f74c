package cluster

// Quorum is how the consensus on the metadata stands. Offsets are raft's indexes.
type Quorum struct {
	LeaderID      int32 // -1 if none is known
	LeaderEpoch   int32 // raft's term
	HighWatermark int64 // what lies below is committed
	End           int64 // of the log of this node
	Voters        []int32
}

// Quorum tells how the consensus stands, as far as this node knows.
func (c *Controller) Quorum() Quorum {
	r := c.voter.raft
	return Quorum{
		LeaderID:      c.Image().ControllerID,
		LeaderEpoch:   int32(r.CurrentTerm()),
		HighWatermark: int64(r.CommitIndex()) + 1,
		End:           int64(r.LastIndex()) + 1,
		Voters:        []int32{c.options.NodeID},
	}
}
