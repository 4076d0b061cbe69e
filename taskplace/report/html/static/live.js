// The live page: asks its server for news, and says when the driver is gone.
